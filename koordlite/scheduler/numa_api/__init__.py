"""NUMA nodes of the whole cluster for people and programs: REST answers and the monitoring page.

`view` is what is known of a node, worked out once for each version of its row; `documents` gives it to programs,
`overview_page` and `node_page` to people; `service` puts both behind a listener.
"""
