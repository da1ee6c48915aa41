"""`dibs doctor`: examine a server for use with dibs, and name a fix for each finding.

`gather` collects facts within a deadline and raises nothing; `findings` judges them without
I/O. The page docs/doctor.md lists every finding.
"""

from .command import doctor, doctor_arguments

__all__ = ["doctor", "doctor_arguments"]
