"""What vcd's daemon needs from an API server, asked of the embedded one and of any real one.

``VCD_TEST_KUBECONFIG`` names a kubeconfig: its server is asked, too. Everything then happens in namespaces of the
tests' own, which go again; beside them only Queues of the tests' own are made, and deleted. ``VCD_TEST_NODES=1``
lets the tests also create Nodes of their own there. The server must have Volcano's definitions of PodGroups and Queues
(``deploy/components/crds``). No scheduler gets work: the pods name one that nobody runs, the groups have no pods.
"""
