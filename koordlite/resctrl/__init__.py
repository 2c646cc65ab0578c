"""The resctrl file system as a library: values, masks, shares, files, monitoring. It knows nothing of Kubernetes."""
