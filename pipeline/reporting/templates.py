"""Pages from the templates beside this file, each with the script that draws its charts."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def scripted(template: str, filters: Mapping[str, Callable[..., Any]], **content: Any) -> str:
    """A page that needs no network. Inserted text is escaped: text from the data cannot become markup."""
    import jinja2

    from pipeline.reporting.charts import javascript

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    script = javascript()
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(script=script, script_hash=script_hash, **content)
