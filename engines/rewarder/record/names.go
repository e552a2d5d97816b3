package record

import (
	"strings"

	"ronbox/engines"
	"ronbox/engines/canon"
)

// FieldError names an invalid member and the reason.
type FieldError = canon.FieldError

// Bounds of names in bytes.
const (
	maxTenant = 63
	maxWord   = 64
	maxEpoch  = 128
	maxActor  = 160
)

// check returns a FieldError unless s is 1 to n bytes of letters, digits and others. Upper-case
// letters need upper. The names . and .. are refused.
func check(field, s string, n int, upper bool, others string) error {
	bad := strings.ContainsFunc(s, func(c rune) bool {
		plain := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || upper && 'A' <= c && c <= 'Z'
		return !plain && !strings.ContainsRune(others, c)
	})
	if bad || s == "" || len(s) > n || s == "." || s == ".." {
		return canon.Fault(field, "must be 1 to %d letters, digits and %s", n, others)
	}
	return nil
}

// CheckTenant returns a FieldError unless s is a valid tenant name.
func CheckTenant(s string) error {
	if s != "" && strings.ContainsRune("_-", rune(s[0])) {
		return canon.Fault("tenant", "must begin with a letter or a digit")
	}
	return check("tenant", s, maxTenant, false, "_-")
}

// CheckEpoch returns a FieldError unless s is a valid epoch id.
func CheckEpoch(s string) error { return check("epoch_id", s, maxEpoch, true, "_.:-") }

// CheckPolicyID returns a FieldError unless s is a valid policy id.
func CheckPolicyID(s string) error { return check("id", s, maxWord, true, "_.-") }

// CheckActor returns a FieldError for field unless s is an account that can be paid.
func CheckActor(field, s string) error {
	if err := engines.CheckAccount(s); err != nil || len(s) > maxActor || engines.IsSystemAccount(s) {
		return canon.Fault(field,
			"must be an account of at most %d bytes that is not the ledger's own: letters, digits and : / _ -",
			maxActor)
	}
	return nil
}
