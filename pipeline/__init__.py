"""Fine-tune a pretrained transformer on sentence pairs. Each module that `dvc.yaml` runs is one stage."""
