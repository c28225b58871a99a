# make investigate   hypothesis to verdict, with the preset that suits this machine
# make test          lint, format and tests
# make lab           JupyterLab
# make wheelhouse PY=3.12   wheels for a GPU host without network, in .wheelhouse/
#
# Each sets up a virtual environment in .venv, once. With PYTHON=/some/python that interpreter is used as it is.

.DEFAULT_GOAL := help
.PHONY: help investigate test lab wheelhouse ready
unexport PY
STAMP := .venv/installed-$(shell cksum < pyproject.toml | tr ' ' '-')

ifeq ($(strip $(PYTHON)),)
RUN := .venv/bin/python
ready: $(STAMP)
else
RUN := "$(PYTHON)"
export PYTHONPATH := $(CURDIR)/lib$(if $(PYTHONPATH),:$(PYTHONPATH))
# With `pip install --target DIR` kernels and report templates lie in DIR/share/jupyter, where Jupyter does not look.
BESIDE := $(shell $(RUN) -c 'import importlib.util as u, os.path as p; s = u.find_spec("ipykernel"); print(p.join(p.dirname(p.dirname(s.origin)), "share", "jupyter") if s else "")')
export JUPYTER_PATH := $(BESIDE)$(if $(JUPYTER_PATH),:$(JUPYTER_PATH))
ready:
	@$(RUN) -m capturebook.requirements check $(EXTRA)
endif

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

$(STAMP): pyproject.toml
	@python3 -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; python3 is " + sys.version.split()[0])'
	@echo "Installing into .venv; the first time takes minutes: torch from PyPI brings gigabytes of CUDA libraries."
	python3 -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check -e '.[dev]'
	@rm -f .venv/installed-*
	@touch "$@"

# Without PRESET the one that suits this machine, as `capturebook doctor` says.
investigate: ready
	@$(RUN) -m capturebook run $(PRESET) $(ARGS)

# Not ".": a user's own kernel may lie beside them.
test: OURS := lib tests notebooks examples
test: EXTRA := test lint
test: ready
	$(RUN) -m ruff check $(OURS)
	$(RUN) -m ruff format --check $(OURS)
	$(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

lab: EXTRA := lab
lab: ready
	$(RUN) -m jupyterlab --ServerApp.root_dir=. $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

wheelhouse: ready
	@$(RUN) -m capturebook.requirements wheelhouse "$(PY)" .wheelhouse
