package engines

import (
	"errors"
	"strings"
)

const (
	// MaxAccount is the longest account name in bytes: room for a path or a key in text, and little enough for one journal record.
	MaxAccount = 256
	// MaxAsset is the longest asset name in bytes: a ticker, not a sentence.
	MaxAsset = 16
)

const (
	systemPrefix   = "sys:"
	issuancePrefix = systemPrefix + "issue:"
)

// ErrAccount says that a text is not the name of an account.
var ErrAccount = errors.New("not an account: must be 1 to 256 of the characters A-Z a-z 0-9 : / _ -")

// ErrAsset says that a text is not the name of an asset.
var ErrAsset = errors.New("not an asset: must be 1 to 16 of the characters a-z 0-9")

// CheckAccount says whether s can name an account, with ErrAccount if not. Names of the ledger's own accounts pass: see IsSystemAccount.
func CheckAccount(s string) error {
	if s == "" || len(s) > MaxAccount {
		return ErrAccount
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= ':', c == '/', c == '_', c == '-':
		default:
			return ErrAccount
		}
	}
	return nil
}

// CheckAsset says whether s can name an asset, with ErrAsset if not.
func CheckAsset(s string) error {
	if s == "" || len(s) > MaxAsset {
		return ErrAsset
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return ErrAsset
		}
	}
	return nil
}

// IsSystemAccount says whether the account is the ledger's own: nobody outside names it as a party.
func IsSystemAccount(s string) bool { return strings.HasPrefix(s, systemPrefix) }

// IssuanceAccount is the ledger's account that issues the asset: what it owes is what there is.
func IssuanceAccount(asset string) string { return issuancePrefix + asset }
