"""Files written whole, by several at once."""

from concurrent.futures import ThreadPoolExecutor

from capturebook.files import write_whole


def test_threads_that_write_one_file_leave_one_of_their_texts_and_nothing_else(tmp_path):
    """Two stops of one server in one process did (symptom: FileNotFoundError from the slower one's rename)."""
    path, texts = tmp_path / "held.json", {letter * 4000 for letter in "abcd"}
    seen = set()

    def write(text: str) -> None:
        for _ in range(40):
            write_whole(path, text)
            seen.add(path.read_text())

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts))
    assert seen <= texts and path.read_text() in texts
    assert [left.name for left in tmp_path.iterdir()] == [path.name]
