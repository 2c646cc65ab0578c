"""The cluster: manifests in a folder, and what kubelet says. The only code that opens sockets to it."""
