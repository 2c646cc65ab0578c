"""What kubelet says and what it wrote."""
