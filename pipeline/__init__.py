"""The settings of a process, made before any other module is imported: the libraries read them at import."""

import gc
import os
import signal
import sys

if sys.argv[0] == "-m":  # "python -m pipeline.X" is looking for X.
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports shows no traceback.

# The threads of libgomp spin while they wait for each other. If another program uses one of their cores, the others
# spin in vain, and a training step takes up to 22 times as long (docs/notes/speed.md). With this limit, they soon give
# up their core. KMP_BLOCKTIME does the same in libomp, which torch uses on macOS, and is untested.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
os.environ.setdefault("KMP_BLOCKTIME", "0")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # Its report on the loaded weights is noise.
os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # The Hub's client logs each of its many retries twice.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # With the Xet protocol, a download may stall without end.
if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")
gc.set_threshold(100_000, 50, 50)  # By default, a seventh of the time to import torch is garbage collection.
