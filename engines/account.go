package engines

import (
	"errors"
	"strings"
)

const (
	// MaxAccount bounds an account name in bytes: room for a path or a key in text, and small
	// enough for one journal record.
	MaxAccount = 256
	// MaxAsset bounds an asset name in bytes.
	MaxAsset = 16
)

const (
	systemPrefix   = "sys:"
	issuancePrefix = systemPrefix + "issue:"
)

// ErrAccount is returned for a text that is not an account name.
var ErrAccount = errors.New("not an account: must be 1 to 256 of the characters A-Z a-z 0-9 : / _ -")

// ErrAsset is returned for a text that is not an asset name.
var ErrAsset = errors.New("not an asset: must be 1 to 16 of the characters a-z 0-9")

// CheckAccount returns ErrAccount if s is not a valid account name. Names of the ledger's own
// accounts are valid: see IsSystemAccount.
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

// CheckAsset returns ErrAsset if s is not a valid asset name.
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

// IsSystemAccount reports whether the account is one of the ledger's own accounts, which callers
// cannot name as a party.
func IsSystemAccount(s string) bool { return strings.HasPrefix(s, systemPrefix) }

// IssuanceAccount returns the ledger's account that issues the asset. Its debt is the supply of the
// asset.
func IssuanceAccount(asset string) string { return issuancePrefix + asset }
