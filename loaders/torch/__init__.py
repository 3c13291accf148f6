"""loader=torch: PyTorch's DataLoader as DLIO runs it, and ``torch.save``."""
