"""Neural networks: graph tensors, backbones, the MaskNet, propagation, and kernels."""
