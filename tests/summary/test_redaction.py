"""Secrets are masked; other long texts stay."""

import pytest

from foldmark.summary.redaction import mask_secrets

LETTERS = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
KEYS = {
    "api key": f"sk-{LETTERS}",
    "anthropic key": f"sk-ant-api03-{LETTERS}",
    "github token": f"ghp_{LETTERS}",
    "gitlab token": f"glpat-{LETTERS[:20]}",
    "aws key": "AKIA" + "ABCD2345EFGH6789",
    "google key": f"AIza{LETTERS}",
    "slack token": f"xoxb-{LETTERS[:12]}",
    "stripe key": f"sk_live_{LETTERS[:24]}",
    "npm token": f"npm_{LETTERS}",
    "json web token": f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}",
}


@pytest.mark.parametrize(("name", "key"), KEYS.items())
def test_a_key_is_masked_and_named(name: str, key: str) -> None:
    assert mask_secrets(f"use '{key}' here") == f"use '[masked: {name}]' here"


def test_a_private_key_is_masked_whole_even_without_its_end() -> None:
    block = f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS}\n{LETTERS}\n"
    whole = f"{block}-----END RSA PRIVATE KEY-----"
    assert mask_secrets(f"a\n{whole}\nb") == "a\n[masked: private key]\nb"
    assert LETTERS not in mask_secrets(block)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2x", "password=[masked: value]"),
        ('"password": "correct horse"', '"password": "correct horse"'),
        ('"db_password": "tr0ub4dor"', '"db_password": "[masked: value]"'),
        ("API_KEY: 9f8e7d6c5b4a3f2e1d", "API_KEY: [masked: value]"),
        ("postgres://app:s3cr3t@db/orders", "postgres://[masked: credentials]@db/orders"),
        (
            "Authorization: Bearer abc123def456ghi789",
            "Authorization: Bearer [masked: authorization]",
        ),
    ],
)
def test_a_value_is_masked_if_its_name_shows_that_it_is_secret(text: str, expected: str) -> None:
    assert mask_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f2a91c0d4b5e6f708192a3b4c5d6e7f80912a3b",
        "id 9b2c1f00-7a5e-4d1c-9f3e-0a1b2c3d4e5f",
        "a_very_long_identifier_that_goes_on_and_on_v2",
        "password: str",
        "token = tokens[0]",
        "secret = get_secret_by_name()",
        "max_tokens: 4096",
        "token=os.environ",
        "api_key = config.api_key_v2_default",
        "risk-assessment-of-the-long-winded-kind",
        "see https://api.example:8080/a@b",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert mask_secrets(text) == text
