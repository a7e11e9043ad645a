"""The commands, run in the Spark of the tests."""

from click.testing import CliRunner

from partq.cli.commands import cli


def run(*arguments):
    return CliRunner().invoke(cli, ["pipeline", *map(str, arguments)])


def test_compact_says_that_there_is_no_archive(spark, tmp_path):
    result = run("compact", tmp_path / "nothing")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"partq: ROOT {tmp_path / 'nothing'}: there is no archive; expected one that `partq "
        "pipeline archive` made"
    ]


def test_compact_says_that_spark_knows_no_such_place(spark):
    result = run("compact", "s3a://bucket/orders")

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "S3AFileSystem not found" in result.stderr
