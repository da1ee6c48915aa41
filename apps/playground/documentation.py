"""The pages of the documentation beside the playground, as `make docs` has built them."""

import os
from pathlib import Path

from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

BUILT = Path(__file__).parents[2] / "build" / "docs" / "html"
_MISSING = Path(__file__).with_name("static") / "no-pages.html"


class Documentation(StaticFiles):
    """Serves the pages. If they are not built: where they are published, or what builds them."""

    def __init__(self, folder: Path = BUILT) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self._folder = folder

    async def check_config(self) -> None:
        """Check nothing: the folder may come and go."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a page, or the answer that stands for all of them."""
        if self._folder.is_dir():
            return await super().get_response(path, scope)
        if published := os.environ.get("DOCS_URL"):
            return RedirectResponse(published)
        return FileResponse(_MISSING, 404)
