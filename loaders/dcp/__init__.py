"""loader=dcp: checkpoints by PyTorch's ``torch.distributed.checkpoint``."""
