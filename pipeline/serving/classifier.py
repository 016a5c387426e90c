"""A trained model as a function of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipeline.core.messages import UserError
from pipeline.core.paths import SETTINGS
from pipeline.modeling.device import precision_of_scores, set_up_device
from pipeline.modeling.loading import load_classifier, load_tokenizer, reading_model
from pipeline.modeling.settings import InferenceSettings, read_settings
from pipeline.modeling.tokenization import length_range
from pipeline.params import Precision

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class Scored(NamedTuple):
    """logits: shape (n, outputs), in the order of the rows. truncated: how many rows were cut to max_length."""

    logits: "NDArray[np.float64]"
    truncated: int


class Classifier:
    """A model directory that stage train has written.

    Its logits are those of stage predict, to the byte, on the same CPU with as many threads.
    """

    def __init__(
        self, directory: Path, settings: InferenceSettings, precision: Literal["auto", Precision] | None = None
    ) -> None:
        """Load the model of these settings.

        precision: None is the one in which its scores were measured, if this machine has it.
        Raises UserError if the model does not load or the device cannot do the precision.
        """
        self._directory, self._settings = directory, settings
        self._device = set_up_device(precision or precision_of_scores(settings.precision), None, "--precision")
        with reading_model(directory):
            if read_settings(directory) != settings:
                raise UserError(f"{directory}: the model was replaced while it was read; run again")
            self._tokenizer = load_tokenizer(directory)
            model: Any = load_classifier(directory, self._device.kind, trained=True)
            least, most = length_range(directory, self._tokenizer, len(settings.text_columns))
            if not least <= settings.max_length <= most:
                raise ValueError(f"{SETTINGS} has max_length {settings.max_length}; it must be {least} to {most}")

        from pipeline.modeling.failures import memory_for_model

        with memory_for_model(training=False):
            self._model = model.to(self._device.kind)

    def score(self, texts: Sequence["pa.Array"], batch_size: int, desc: str = "scoring") -> Scored:
        """Score n rows. texts: of each text column, an array of n strings. batch_size: rows of a forward pass on a GPU.

        desc: for the progress bar. Raises UserError where memory runs out.
        """
        import numpy as np
        import pyarrow as pa

        from pipeline.core.tables import from_numpy, schema
        from pipeline.modeling.failures import demand_finite_logits
        from pipeline.modeling.inference import logits
        from pipeline.modeling.tokenization import encode, token_columns

        settings = self._settings
        idx = from_numpy(np.arange(len(texts[0]), dtype=np.int32))
        rows = pa.RecordBatch.from_arrays([*texts, idx], names=[*settings.text_columns, "idx"])
        encoded = encode(
            rows, self._tokenizer, settings.text_columns, settings.max_length, settings.padding,
            schema(token_columns(self._tokenizer)),
        )  # fmt: skip
        table = pa.Table.from_batches([encoded.batch])
        scored = logits(self._model, table, self._tokenizer, batch_size, self._device.precision, desc=desc)
        demand_finite_logits(self._directory, scored, self._device.precision)
        return Scored(scored.astype(np.float64), encoded.truncated)
