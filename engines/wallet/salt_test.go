package wallet

import (
	"testing"
)

// The hash of an account depends only on the account and the salt.
func TestAccountHashes(t *testing.T) {
	a, b := newSalt([]byte("one")), newSalt([]byte("two"))
	if a.Sum([]byte("x")) != newSalt([]byte("one")).Sum([]byte("x")) || a.Sum([]byte("x")) == b.Sum([]byte("x")) ||
		a.Sum([]byte("x")) == a.Sum([]byte("y")) {
		t.Error("hashes do not tell accounts and salts apart")
	}
}
