"""The report of a faulty run, as the command's engine for small archives writes it."""

import json
from dataclasses import dataclass
from pathlib import Path

from partq.pipeline.audit.engines.arrow import ArrowAuditEngine
from partq.pipeline.audit.job import PAGE, VERDICT, run_audit
from partq.pipeline.audit.verdict import AuditVerdict
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from tests.pipeline.audit.frames import write_archive
from tests.pipeline.audit.page_reader import read_page
from tests.pipeline.audit.report.faulty_run import faulty_run


@dataclass(frozen=True)
class FaultyReport:
    folder: Path
    verdict: AuditVerdict

    @classmethod
    def write(cls, folder: Path) -> "FaultyReport":
        root = write_archive(folder / "archive", [(run, run.rows()) for run in faulty_run()])
        watch, files = JobWatch(), LocalFiles(root)
        report = run_audit(
            ArrowAuditEngine(root, watch),
            files,
            LocalFiles(str(folder / "report")),
            watch,
        )
        return cls(folder / "report", report.verdict)

    def json(self):
        return json.loads((self.folder / VERDICT).read_text(encoding="utf-8"))

    def page(self):
        return read_page((self.folder / PAGE).read_text(encoding="utf-8"))
