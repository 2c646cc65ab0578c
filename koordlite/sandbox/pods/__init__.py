"""The pods of the emulated node: kubelet, workloads and what they demand."""
