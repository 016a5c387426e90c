"""Shared fixtures: the embedded corpus, tiny newly initialized transformers, and copies of this project."""

import csv
import functools
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub import Hub, serve

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: no test may reach the Hub
# The workers share the cores, and the bytes and the names of experiments depend on the number of threads.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # The tests compare bytes, and start more processes than there are GPUs.
os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
# Tests and stages run `dvc` and `python` by name. Use this environment even if it is not activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from demo_pairs import pairs

from pipeline.core.output import write_json
from pipeline.core.paths import SOURCE
from pipeline.evaluation.predictions import Predictions
from pipeline.params import DataParams, Params, RuntimeParams, TokenizeParams, TrainParams, load_params, parse_params

ROOT = Path(__file__).parents[1]
PARAMS = ROOT / "tests" / "params.yaml"  # the project's params.yaml may contain the values of an experiment
_TREE = yaml.safe_load(PARAMS.read_text())
# The stages must not see the user's mirrors. TESTS_MRPC passes MRPC_MIRROR on to pytest's worker processes.
MRPC = Path(
    os.environ.setdefault("TESTS_MRPC", os.environ.get("MRPC_MIRROR", str(ROOT.parent / "shared/mrpc")))
).absolute()
GLUE = Path(
    os.environ.setdefault("TESTS_GLUE", os.environ.get("GLUE_MIRROR", str(ROOT.parent / "shared/glue")))
).absolute()
os.environ.pop("MRPC_MIRROR", None)
os.environ.pop("GLUE_MIRROR", None)
os.environ.pop("CHECKPOINT_MIRROR", None)
os.environ.pop("HF_ENDPOINT", None)
for variable in [name for name in os.environ if name.startswith(("GIT_", "DVC_"))]:
    del os.environ[variable]  # git hooks set them, but the tests use their own repositories
os.environ["DVC_NO_ANALYTICS"] = "1"  # it would start a process that outlives the command

TinyMaker = Callable[..., Path]

LONGEST = ("pipeline", "resume", "statistics", "train", "tutorial", "verify")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest files. At the end, a worker would run such a file alone, because files are not divided."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONGEST)


def committed(name: str) -> str:
    """Return a project file as committed at HEAD. The workspace may contain an experiment's version."""
    return subprocess.check_output(["git", "show", f"HEAD:{name}"], cwd=ROOT, text=True)


def params_file(directory: Path, changes: dict[str, Any] | None = None) -> Path:
    """Copy the tests' params.yaml into a directory and change some values."""
    path = directory / "params.yaml"
    shutil.copy(PARAMS, path)
    for key, text in (changes or {}).items():
        edit(path, key, text)
    return path


def edit(path: Path, key: str, text: Any) -> None:
    """Change one line of a params.yaml, as a user would in an editor."""
    lines = path.read_text().splitlines(keepends=True)
    position = -1
    for depth, name in enumerate(key.split(".")):
        indent = "  " * depth
        position = next(n for n in range(position + 1, len(lines)) if lines[n].startswith(f"{indent}{name}:"))
    lines[position] = f"{indent}{name}: {text}\n"
    path.write_text("".join(lines))


def data_params(**changes: Any) -> DataParams:
    """Return the `data` section of tests/params.yaml with some values changed. Other keys of `split` stay."""
    split = {**_TREE["data"]["split"], **changes.pop("split", {})}
    corrections = str(ROOT / "tests/no_corrections.csv")
    return parse_params(
        {**_TREE, "data": {**_TREE["data"], "corrections": corrections, **changes, "split": split}}
    ).data


def as_predictions(labels: Any, predicted: Any, probability: Any = None) -> Predictions:
    """Return predictions without texts and logits."""
    n = len(labels)
    return Predictions(np.arange(n), labels, predicted, np.zeros((n, 1)), probability, pd.DataFrame(index=range(n)))


@pytest.fixture(scope="session", autouse=True)
def _exempt_imports_from_garbage_collection() -> None:
    """The Trainer collects garbage in every run. Scanning all imported objects would take half of that run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _survive_closed_pipes() -> Iterator[None]:
    """A command that ran in this process lets a closed pipe end it, which must not end the worker in a later test."""
    handler = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, handler)


@pytest.fixture
def work_in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _log_at_info(caplog: pytest.LogCaptureFixture) -> None:
    """Log at the level that `cli.as_command` sets."""
    caplog.set_level("INFO", logger="pipeline")


@pytest.fixture(scope="session")
def mrpc() -> Path:
    """The directory with MRPC's three original files."""
    if not MRPC.is_dir():
        pytest.skip(f"MRPC is not at {MRPC}; set MRPC_MIRROR to the directory with its three files")
    return MRPC


@pytest.fixture(scope="session")
def glue() -> Path:
    """The directory with RTE, CoLA, STS-B and SST-2, laid out like GLUE's archives."""
    if not GLUE.is_dir():
        pytest.skip(f"GLUE is not at {GLUE}; set GLUE_MIRROR to a directory with RTE/, CoLA/, STS-B/ and SST-2/")
    return GLUE


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in for the Hub. The Hub client in this process connects to it."""
    with serve() as hub:
        hub.connect(tmp_path / "hub", monkeypatch)
        yield hub


@pytest.fixture(scope="session")
def params() -> Params:
    return load_params(PARAMS)


def keys_of(*names: str) -> set[str]:
    """Return the keys with these names, such as "train.precision", and all keys of the sections, such as "predict"."""
    keys = {f"{name}.{key}" for name, section in Params.__annotations__.items() for key in section.model_fields}
    return {key for key in keys if key in names or key.partition(".")[0] in names}


def tokenize_params(max_length: int = 96, **changes: Any) -> TokenizeParams:
    """Return the `tokenize` section with some keys changed."""
    return load_params(PARAMS).tokenize.model_copy(update={"max_length": max_length, **changes})


def sections(params: Params, **changes: Any) -> tuple[TrainParams, RuntimeParams]:
    """Return the `train` and `runtime` sections with some keys changed."""
    runtime_changes = {key: value for key, value in changes.items() if hasattr(params.runtime, key)}
    train_changes = {key: value for key, value in changes.items() if key not in runtime_changes}
    return params.train.model_copy(update=train_changes), params.runtime.model_copy(update=runtime_changes)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyMaker:
    """Make a newly initialized two-layer transformer, with a fast tokenizer trained on the embedded corpus."""

    @functools.cache
    def make(model_type: str = "bert", **config: Any) -> Path:
        return _tiny(model_type, tmp_path_factory.mktemp("tiny") / model_type, config)

    return make


def _tiny(model_type: str, out: Path, config: dict[str, Any]) -> Path:
    import torch
    from transformers import AutoConfig, AutoModel

    tokenizer = _tokenizer(model_type, out.parent)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    entries: dict[str, dict[str, Any]] = {
        "bart": {"decoder_layers": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
        "distilbert": {"hidden_dim": 64},
        "gpt2": {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id},
        "llama": {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id},
        "mpnet": {"max_position_embeddings": 130},
        "roberta": {"max_position_embeddings": 130, "type_vocab_size": 1},  # as in the published models
    }
    shape = {"vocab_size": len(tokenizer), "max_position_embeddings": 128, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    model_config = AutoConfig.for_model(model_type, **{**shape, **sizes, **entries.get(model_type, {}), **config})
    AutoModel.from_config(model_config).save_pretrained(out)
    tokenizer.save_pretrained(out)
    write_json(out / SOURCE, {"checkpoint": "a local directory", "revision": None, "files": {}})
    return out


def _tokenizer(model_type: str, directory: Path) -> Any:
    """Return a tokenizer of the kind that a type of model has. Some kinds write their vocabulary to a directory."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    sentences = [sentence for pair in pairs(300) for sentence in pair[:2]]
    if model_type in ("bert", "distilbert", "mpnet"):
        special_tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        if model_type == "mpnet":
            special_tokens = ["<s>", "<pad>", "</s>", "<mask>", "[UNK]"]
        words = sorted({word for sentence in sentences for word in sentence.lower().split()} | set("0123456789"))
        pieces = [f"##{digit}" for digit in "0123456789"]
        vocab = {token: number for number, token in enumerate([*special_tokens, *words, *pieces])}
        classes = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "mpnet": "MPNetTokenizer"}
        return getattr(transformers, classes[model_type])(vocab=vocab, model_max_length=128)
    is_decoder = model_type in ("gpt2", "llama")  # no padding token, and no separator between two texts
    special_tokens = ["<|endoftext|>"] if is_decoder else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator(sentences, vocab_size=600, special_tokens=special_tokens)
    if is_decoder:
        names = {"eos_token": "<|endoftext|>", "model_input_names": ["input_ids", "attention_mask"]}
        return transformers.PreTrainedTokenizerFast(tokenizer_object=trainer._tokenizer, model_max_length=128, **names)
    vocabulary, merges = trainer.save_model(str(directory))
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=128)


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded corpus as the download stage writes it."""
    from pipeline.download import download  # imports torch, which xdist's controller does not need

    out = tmp_path_factory.mktemp("demo") / "raw"
    download(out, data_params(task="demo"))
    return out


@pytest.fixture(scope="session")
def tokenized(tmp_path_factory: pytest.TempPathFactory, raw: Path, tiny: TinyMaker) -> Callable[..., Path]:
    """Tokenize the embedded corpus for a checkpoint. All tests share the directory and must not change it."""
    from pipeline.tokenize_data import tokenize

    @functools.cache
    def run(checkpoint: Path) -> Path:
        out = tmp_path_factory.mktemp("tokenized") / "tokenized"
        tokenize(raw, checkpoint, out, tokenize_params(), num_proc=1)
        return out

    return run


def train_model(tokenized: Path, checkpoint: Path, out: Path, checkpoints: Path | None = None, **changes: Any) -> Path:
    """Run train with changed parameters. Writes `classifier`, `metrics` and `checkpoints` to `out`, and returns `out`.

    Runs that share a directory of checkpoints pass it as `checkpoints`.
    """
    from accelerate.state import AcceleratorState

    from pipeline.train import train

    AcceleratorState._reset_state(reset_partial_state=True)  # Unlike a stage, a test trains with several precisions.
    settings = sections(load_params(PARAMS), **changes)
    train(tokenized, checkpoint, out / "classifier", out / "metrics", checkpoints or out / "checkpoints", *settings)
    return out


def predict_splits(raw: Path, tokenized: Path, out: Path, **changes: Any) -> Path:
    """Run predict with changed parameters on the classifier in `out`, and return the directory of the predictions."""
    from pipeline.predict import predict

    settings = load_params(PARAMS).predict.model_copy(update=changes)
    predict(raw, tokenized, out / "classifier", out / "predictions", settings, "fp32", 1)
    return out / "predictions"


def contents(path: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of all files below a directory, by relative path."""
    files = (file for file in [path, *path.rglob("*")] if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def update_json(file: Path, **entries: Any) -> None:
    """Change entries of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def replace_columns(file: Path, **columns: Any) -> None:
    """Replace columns of a Parquet file, and keep their types."""
    table = pq.read_table(file)
    for name, values in columns.items():
        position = table.column_names.index(name)
        field = table.schema.field(position)
        table = table.set_column(position, field, pa.array(values, field.type))
    pq.write_table(table, file)


def engine_outputs(out: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a run, except for what differs between the engines.

    provenance.json has the name of the engine and the hash of its code.
    """
    files = contents(out)
    different = rb'"(code|engine)": "\w+"'
    return {name: re.sub(different, b"", content) for name, content in files.items()}


def read_history(out: Path) -> list[dict[str, str]]:
    """Return the rows of history.csv of a run."""
    with (out / "metrics" / "plots" / "history.csv").open() as file:
        return list(csv.DictReader(file))


def read_logits(file: Path) -> np.ndarray:
    """Return the logits in a file of predictions, shape (examples, outputs)."""
    return pd.read_parquet(file).filter(like="logit_").to_numpy()


def run_python(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run python with the pipeline on its path."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


def run_stage(stage: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a stage as DVC does, in a directory that contains a params.yaml."""
    return run_python("-m", f"pipeline.{stage}", cwd=cwd, **env)


def run_command(*command: str | Path, cwd: Path, env: dict[str, str], ok: bool = True) -> str:
    """Run a command and return its output. Fails on an unexpected exit status."""
    # Do not use a pipe: a leftover worker of DVC's queue would keep it open, and we would wait for that worker.
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(command, cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT)
        out.seek(0)
        printed = out.read()
    assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{printed}"
    return printed


class Project:
    """A copy of this project in its own git repository, configured for a tiny checkpoint and the embedded corpus."""

    def __init__(self, root: Path, checkpoint: Path, home: Path) -> None:
        self.root = root
        names = subprocess.check_output(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, text=True
        ).split("\0")
        for name in names:
            excluded = name.startswith(("tests/", "metrics/", "data/custom")) or name in ("dvc.lock", "params.yaml")
            excluded = excluded or name.endswith(".dvc")  # the user's data
            if (ROOT / name).is_file() and (name == "metrics/.gitignore" or not excluded):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        (root / "data" / "custom").mkdir(parents=True)
        (root / "data" / "custom" / ".gitkeep").touch()
        home.mkdir()
        self.env = os.environ | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}  # no settings and no caches of the user
        params_file(root, {"model.checkpoint": checkpoint})
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "A")
        self.git("config", "user.email", "a@example.org")
        self.commit("start")

    def git(self, *arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=self.root, env=self.env, text=True)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)

    def set(self, key: str, value: str) -> None:
        edit(self.root / "params.yaml", key, value)

    def params(self) -> Any:
        return yaml.safe_load((self.root / "params.yaml").read_text())

    def run(self, *command: str, ok: bool = True, **env: str) -> str:
        return run_command(*command, cwd=self.root, env={**self.env, **env}, ok=ok)

    def repro(self, *arguments: str) -> list[str]:
        """Run `dvc repro` and return the stages whose command ran."""
        out = self.run("dvc", "repro", *arguments)
        return [line.split("'")[1] for line in out.splitlines() if line.startswith("Running stage")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker) -> Project:
    base = tmp_path_factory.mktemp("a project")
    root = base / "in a path with spaces"
    root.mkdir()
    return Project(root, tiny(), base / "home")


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that runs the toy pipeline. Tests change copies of it."""
    from toy import toy_project  # imports DVC, which most tests do not need

    return toy_project(tmp_path_factory.mktemp("toy_template"))


@pytest.fixture(scope="module")
def module_toy(tmp_path_factory: pytest.TempPathFactory, toy_template: Project) -> Project:
    """A copy of the toy project for all tests of a module."""
    from toy import copy_of

    return copy_of(toy_template, tmp_path_factory.mktemp("toy"))


@pytest.fixture
def toy(module_toy: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The module's toy project, entered as the working directory."""
    monkeypatch.chdir(module_toy.root)
    monkeypatch.setattr("pipeline.core.stage.PROJECT", module_toy.root)
    return module_toy


def with_extras(directory: Path, *names: str) -> Path:
    """Create an environment with this environment's packages and some extras, and return its python."""
    venv.create(directory, with_pip=True)
    paths = [entry for entry in sys.path if entry.endswith("site-packages")]
    next(directory.glob("lib/python*/site-packages")).joinpath("project.pth").write_text("\n".join(paths))
    python = directory / "bin" / "python"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "requirements.lock"]
    packages = [package for name in names for package in extras[name]]
    done = subprocess.run([*install, *packages], capture_output=True, text=True)
    if done.returncode:
        assert "ResolutionImpossible" not in done.stderr, done.stderr
        pytest.skip(f"{', '.join(packages)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return python
