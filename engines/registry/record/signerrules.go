package record

import (
	"cmp"
	"strconv"
	"strings"

	"ronbox/engines/registry/checkpoint"
)

const (
	// MaxActive is the most active signers of a set.
	MaxActive = 64
	// MaxSigners is the most entries of a set, tombstones included.
	MaxSigners = 256
	// MaxLogKeys is the most log keys of a set.
	MaxLogKeys = 16
	// MaxGrace is the most versions after a change of signers for which a retired key may count.
	MaxGrace = 8
	// maxSignerID is the most bytes of a signer id.
	maxSignerID = 128
	// maxSignerText is the most bytes of a reason.
	maxSignerText = 1024
	// maxPolicy is the most bytes of a witness policy.
	maxPolicy = 16 << 10
)

// Validate checks the rules of a set and, with prev, those of its history. prev is the set before
// it, nil for the first. It returns a *FieldError for a broken rule. It does not compare a later
// set with the version that installs it.
func (s *SignerSet) Validate(prev *SignerSet) error {
	if err := s.check(""); err != nil {
		return err
	}
	if prev == nil {
		return cmp.Or(s.follows("", nil), s.begins("", nil, 1))
	}
	return s.follows("", prev)
}

// check checks the rules that need no other set.
func (s *SignerSet) check(path string) error {
	if n := len(s.Signers); n > MaxSigners {
		return fieldf(path+"signers", "%d entries, at most %d", n, MaxSigners)
	}
	ids, keys := map[string]bool{}, map[string]string{}
	for i, e := range s.Signers {
		at := path + "signers." + strconv.Itoa(i) + "."
		if field, reason := e.fault(); reason != "" {
			return fieldf(at+field, "%s", reason)
		}
		if ids[e.ID] {
			return fieldf(at+"signer_id", "%s is listed twice", e.ID)
		}
		if other, twice := keys[e.PublicKey]; twice {
			return fieldf(at+"public_key", "is the key of %s too", other)
		}
		ids[e.ID], keys[e.PublicKey] = true, e.ID
	}
	switch active := s.Active(); {
	case s.Epoch < 1:
		return fieldf(path+"epoch", "must be at least 1")
	case s.Threshold < 1:
		return fieldf(path+"threshold", "must be at least 1")
	case s.ThresholdGov < s.Threshold:
		return fieldf(path+"threshold_gov", "must be at least threshold, %d", s.Threshold)
	case active < s.ThresholdGov:
		return fieldf(path+"threshold_gov", "is %d, but only %d signers are active", s.ThresholdGov, active)
	case active > MaxActive:
		return fieldf(path+"signers", "%d active signers, at most %d", active, MaxActive)
	case len(s.WitnessPolicy) > maxPolicy:
		return fieldf(path+"witness_policy", "must be at most %d bytes", maxPolicy)
	}
	if _, err := checkpoint.ParsePolicy(s.WitnessPolicy); err != nil {
		return fieldf(path+"witness_policy", "%v", err)
	}
	return s.checkLogKeys(path, keys)
}

// checkLogKeys checks that log keys are valid, unique and different from the keys of signers.
func (s *SignerSet) checkLogKeys(path string, signers map[string]string) error {
	if n := len(s.LogKeys); n > MaxLogKeys {
		return fieldf(path+"log_keys", "%d keys, at most %d", n, MaxLogKeys)
	}
	seen := map[string]bool{}
	for i, vkey := range s.LogKeys {
		at := path + "log_keys." + strconv.Itoa(i)
		_, key, err := checkpoint.ParseLogKey(vkey)
		if err != nil {
			return fieldf(at, "%v", err)
		}
		public := encode64(key)
		if id, both := signers[public]; both {
			return fieldf(at, "is the key of signer %s too", id)
		}
		if seen[public] {
			return fieldf(at, "is listed twice")
		}
		seen[public] = true
	}
	return nil
}

// fault describes a broken rule and the member of the entry that breaks it.
func (s Signer) fault() (field, reason string) {
	switch {
	case !validSignerID(s.ID):
		return "signer_id", "must be org:<realm>#<key>, at most " + strconv.Itoa(
			maxSignerID,
		) + " bytes of letters, digits, dot, _ and -"
	case s.Algo != AlgoEd25519:
		return "algo", "must be ed25519"
	case s.Status != StatusActive && s.Status != StatusRetired && s.Status != StatusRevoked:
		return "status", "must be active, retired or revoked"
	case s.SinceVersion < 1:
		return "since_version", "must be at least 1"
	case s.GraceUntilVersion != 0 && s.Status != StatusRetired:
		return "grace_until_version", "only a retired signer has one"
	case len(s.Reason) > maxSignerText:
		return "reason", "must be at most " + strconv.Itoa(maxSignerText) + " bytes"
	}
	if _, reason := parsePublicKey(s.PublicKey); reason != "" {
		return "public_key", reason
	}
	return "", ""
}

// follows checks the rules of history: no entry disappears, changes its key, or becomes active
// again.
func (s *SignerSet) follows(path string, prev *SignerSet) error {
	if prev == nil {
		prev = &SignerSet{}
	}
	if s.Epoch != prev.Epoch+1 {
		return fieldf(path+"epoch", "must be %d", prev.Epoch+1)
	}
	for _, old := range prev.Signers {
		now, known := s.Find(old.ID)
		switch at := path + "signers"; {
		case !known:
			return fieldf(at, "%s has disappeared", old.ID)
		case now.PublicKey != old.PublicKey || now.Algo != old.Algo:
			return fieldf(at, "%s has another key than before", old.ID)
		case now.SinceVersion != old.SinceVersion:
			return fieldf(at, "%s has another since_version than before", old.ID)
		case now.Status == StatusActive && old.Status != StatusActive:
			return fieldf(at, "%s is %s and cannot become active again", old.ID, old.Status)
		case now.Status == StatusRetired && old.Status == StatusRevoked:
			return fieldf(at, "%s is revoked and stays so", old.ID)
		case now.Status == StatusRetired && old.Status == StatusRetired &&
			now.GraceUntilVersion > old.GraceUntilVersion:
			return fieldf(at, "%s cannot be given more grace", old.ID)
		}
	}
	return nil
}

// begins compares the changes of a set with the version that installs it: a new signer is active
// since that version, and a retired one may count for at most MaxGrace more versions.
func (s *SignerSet) begins(path string, prev *SignerSet, version uint64) error {
	for i, e := range s.Signers {
		at := path + "signers." + strconv.Itoa(i) + "."
		switch old, known := prev.Find(e.ID); {
		case !known && e.Status != StatusActive:
			return fieldf(at+"status", "must be active: %s is new", e.ID)
		case !known && e.SinceVersion != version:
			return fieldf(at+"since_version", "must be %d, the version that admits %s", version, e.ID)
		case known && old.Status == StatusActive && e.GraceUntilVersion > version+MaxGrace:
			return fieldf(at+"grace_until_version", "must be at most %d", version+MaxGrace)
		}
	}
	return nil
}

// validSignerID reports whether s is org:<realm>#<key>.
func validSignerID(s string) bool {
	realm, key, ok := strings.Cut(strings.TrimPrefix(s, "org:"), "#")
	return ok && len(s) <= maxSignerID && strings.HasPrefix(s, "org:") && validWord(realm) && validWord(key)
}

// validWord reports whether s is a letter or digit, then letters, digits, dots, underscores and
// hyphens.
func validWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}
