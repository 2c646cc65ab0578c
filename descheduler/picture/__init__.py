"""The picture that is judged: pods, nodes, budgets and usage at one instant, and the indexes over them."""
