"""Leave in dist/ what a tag publishes: python -m tools.dist.tagged TAG.

A tag names one distribution and its version. The others are built with it, to try them together,
and are not uploaded: a registry refuses another file under a version that it has.
"""

import sys

from .projects import DIST, files_of, projects, release_tag


def main(tag: str) -> int:
    """Remove the files of all other distributions. 1: no distribution has that name and version."""
    published = [project for project in projects() if release_tag(project) == tag]
    if not published:
        known = ", ".join(release_tag(project) for project in projects())
        print(f"{tag} is not the version of a distribution; they are: {known}")
        return 1
    kept = files_of(published[0])
    for path in DIST.glob("*"):
        if path not in kept:
            path.unlink()
    print(f"{tag} publishes {published[0].name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
