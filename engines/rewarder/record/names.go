package record

import (
	"strings"

	"ronbox/engines"
	"ronbox/engines/canon"
)

// FieldError names a member that cannot be taken, and why.
type FieldError = canon.FieldError

// Bounds of names, bytes.
const (
	maxTenant = 63
	maxWord   = 64
	maxEpoch  = 128
	maxActor  = 160
)

// check is nil for a text of 1 to n bytes of letters, digits and others, upper-case ones only if upper, but for . and .. alone.
func check(field, s string, n int, upper bool, others string) error {
	bad := strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || upper && 'A' <= c && c <= 'Z' || strings.ContainsRune(others, c))
	})
	if bad || s == "" || len(s) > n || s == "." || s == ".." {
		return canon.Fault(field, "must be 1 to %d letters, digits and %s", n, others)
	}
	return nil
}

// CheckTenant is nil for the name of a tenant.
func CheckTenant(s string) error {
	if s != "" && strings.ContainsRune("_-", rune(s[0])) {
		return canon.Fault("tenant", "must begin with a letter or a digit")
	}
	return check("tenant", s, maxTenant, false, "_-")
}

// CheckEpoch is nil for the id of an epoch.
func CheckEpoch(s string) error { return check("epoch_id", s, maxEpoch, true, "_.:-") }

// CheckPolicyID is nil for the id of a policy.
func CheckPolicyID(s string) error { return check("id", s, maxWord, true, "_.-") }

// CheckActor is nil for an account that can be paid, the fault of a field if not.
func CheckActor(field, s string) error {
	if err := engines.CheckAccount(s); err != nil || len(s) > maxActor || engines.IsSystemAccount(s) {
		return canon.Fault(field, "must be an account of at most %d bytes that is not the ledger's own: letters, digits and : / _ -", maxActor)
	}
	return nil
}
