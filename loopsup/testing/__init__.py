"""The conformance suite for agent adapters, for anybody's test suite (pytest is not imported here).

    import pytest
    from loopsup.testing import conformance

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
    def test_conformance(check, tmp_path):
        conformance.run(check, MyHarness(tmp_path))

`MyHarness` is the adapter author's `loopsup.testing.harness.Harness`: it makes launches in a temporary
directory and scripts the agent (or the model server behind it) for a small closed set of scenarios.
"""
