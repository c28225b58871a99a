#!/bin/sh
# The answers name the model's path, which lies in this launch's own folder: no other server can give them.
set -e
python3 tiny_model.py "$CAPTUREBOOK_FOLDER/model"
exec transformers serve "$CAPTUREBOOK_FOLDER/model" --host 127.0.0.1 --port "$CAPTUREBOOK_PORT" --device cpu "$@"
