"""If a private API that the pipeline uses changes, a test names it and the file that uses it in one line."""

import ast
import inspect
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT


def the_cache_directory_can_be_read(scratch: Path) -> None:
    from dvc.repo import Repo

    subprocess.run(["git", "init", "--quiet"], cwd=scratch, check=True, capture_output=True)
    Repo.init(str(scratch)).close()
    (scratch / ".dvc" / "config").write_text("[cache]\n    dir = ../../elsewhere\n")
    with closing(Repo(str(scratch))) as repo:
        assert Path(repo.cache.local_cache_dir).resolve() == (scratch.parent / "elsewhere").resolve()


def experiments_are_git_references(scratch: Path) -> None:
    from dvc.repo.experiments.refs import ExpRefInfo

    base = "0123456789" * 4
    assert str(ExpRefInfo(base, "an-experiment")) == f"refs/exps/{base[:2]}/{base[2:]}/an-experiment"


def the_state_is_written_last(scratch: Path) -> None:
    """A checkpoint with a trainer_state.json is complete, and `on_save` is called after it is written."""
    from transformers import Trainer

    source = inspect.getsource(Trainer._save_checkpoint)
    steps = ("self.save_model(", "_save_optimizer_and_scheduler(", "_save_rng_state(", "save_to_json(", "rotate_")
    positions = [source.index(step) for step in steps]
    assert positions == sorted(positions)
    source = inspect.getsource(Trainer._maybe_log_save_evaluate)
    assert source.index("self._save_checkpoint(model, trial)") < source.index("self.callback_handler.on_save(")


def the_number_of_gpus_can_be_set(scratch: Path) -> None:
    from transformers import TrainingArguments

    arguments = TrainingArguments(output_dir=str(scratch), use_cpu=True)
    assert arguments.n_gpu == 0
    arguments._n_gpu = 7
    assert arguments.n_gpu == 7


def the_trainer_asks_for_its_sampler(scratch: Path) -> None:
    from transformers import Trainer

    assert "self._get_train_sampler" in inspect.getsource(Trainer.get_train_dataloader)


def accelerate_keeps_each_loader(scratch: Path) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader([1, 2]))
    assert accelerator._dataloaders == [loader]


# API -> the file that uses it, and a function that fails if the API has changed. It may write to a scratch directory.
CONTRACTS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "transformers.trainer.TRAINER_STATE_NAME": ("training/checkpointing.py", the_state_is_written_last),
    "accelerate.Accelerator._dataloaders": ("modeling/scoring.py", accelerate_keeps_each_loader),
    "transformers.Trainer._get_train_sampler": ("training/trainer.py", the_trainer_asks_for_its_sampler),
    "transformers.TrainingArguments._n_gpu": ("modeling/scoring.py", the_number_of_gpus_can_be_set),
    "dvc.repo.Repo": ("experiments/launch.py", the_cache_directory_can_be_read),
    "refs/exps": ("experiments/launch.py", experiments_are_git_references),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_private_api_works_as_the_pipeline_expects(name: str, tmp_path: Path) -> None:
    user_file, check = CONTRACTS[name]
    assert name.rpartition(".")[2] in (ROOT / "pipeline" / user_file).read_text(), (
        f"{user_file} does not use {name}. Remove its contract."
    )
    reason = None
    try:
        check(tmp_path)
    except (Exception, pytest.fail.Exception) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
    if reason:
        pytest.fail(f"{name}, used in pipeline/{user_file}, has changed: {reason}", pytrace=False)


def test_private_modules_of_dvc_are_imported_only_with_a_contract() -> None:
    imported = set()
    for path in (ROOT / "pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dvc"):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
            assert not (isinstance(node, ast.Import) and any(alias.name.startswith("dvc") for alias in node.names))
    assert {name for name in imported if not name.startswith(("dvc.api.", "dvc.exceptions."))} <= CONTRACTS.keys()
