"""NUMA nodes and the last night of the whole cluster for people and programs: pages and REST answers.

`view` is what is known of a node, worked out once for each version of its row; `rest` gives it to programs,
`overview_page` and `node_page` to people. `nights_page` asks the agents; `service` puts all behind a listener.
"""
