"""docs/installing.md: its values render, its configuration is taken, and what its commands name is there."""

import re
import tomllib

import yaml
from conftest import HELMS, ROOT, command, documents, helm_template
from test_meaning import check_config, config_text, environment, gateway_of, workload

PAGE = (ROOT / "docs/installing.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_values_of_the_page_install_gateways_that_take_their_configuration(binary, tmp_path):
    text, = blocks("yaml")
    (tmp_path / "values.yaml").write_text(text)
    for helm in HELMS:
        rendered = documents(helm_template("--values", tmp_path / "values.yaml", helm=helm))
        pod = workload(rendered)["spec"]["template"]["spec"]
        assert tomllib.loads(config_text(rendered, pod)) == tomllib.loads(yaml.safe_load(text)["config"])
        check_config(binary, config_text(rendered, pod), environment(gateway_of(workload(rendered))), tmp_path)


def test_what_the_page_s_commands_name_is_there():
    commands = "\n".join(blocks("sh"))
    named = set(re.findall(r"\b(?:deploy|tests/deploy)/[\w./-]*\w", commands))
    assert len(named) >= 6
    for path in named:
        assert (ROOT / path).exists(), path
    # Names of tests stand as run.sh takes them.
    for test in re.findall(r"\btest_\w+\.py", commands):
        assert (ROOT / "tests/deploy" / test).exists(), test
    for script in re.findall(r"deploy/image/\w+\.sh", commands):
        command("bash", "-n", ROOT / script)
