package index

import (
	"strings"

	"golang.org/x/mod/semver"
	"golang.org/x/net/idna"

	"ronbox/appliance/b3"
)

// Prefixes of the two kinds of key.
const (
	namePrefix = "name:"
	b3Prefix   = "b3:"
)

// Bounds of a key, bytes: DNS's for names and labels, and enough for any version that people write.
const (
	maxName    = 253
	maxLabel   = 63
	maxVersion = 64
	maxKeyText = 4 * 1024 // of a key before it is normalised: letters outside ASCII shrink
)

// Key is what a manifest is looked up by: "name:<fqdn>", "name:<fqdn>@<semver>" or "b3:<hex>", in its one spelling. The zero Key stands for no key.
type Key struct{ text string }

// ParseKey reads a key and gives it its one spelling. A fault is a *KeyError.
//
// A name is taken as IDNA (UTS 46, non-transitional) maps it, and kept in ASCII; one trailing dot falls away. A version is SemVer 2.0 without
// build metadata.
func ParseKey(s string) (Key, error) {
	if len(s) > maxKeyText {
		return Key{}, &KeyError{"is longer than 4096 bytes"}
	}
	if strings.HasPrefix(s, b3Prefix) {
		if _, err := b3.Parse(s); err != nil {
			return Key{}, &KeyError{`must be "b3:" and 64 lower-case hex digits`}
		}
		return Key{s}, nil
	}
	rest, ok := strings.CutPrefix(s, namePrefix)
	if !ok {
		return Key{}, &KeyError{`must begin with "name:" or "b3:"`}
	}
	name, version, versioned := rest, "", false
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		name, version, versioned = rest[:at], rest[at+1:], true
	}
	name, err := NormalizeName(name)
	if err != nil {
		return Key{}, err
	}
	if !versioned {
		return keyOf(s, name), nil
	}
	if len(version) > maxVersion || semver.Canonical("v"+version) != "v"+version {
		return Key{}, &KeyError{"version must be SemVer without build metadata, as 1.2.3 or 1.2.3-rc.1, of at most 64 bytes"}
	}
	return keyOf(s, name+"@"+version), nil
}

// keyOf is the key of a normalised rest, in the memory of s if that is spelt so already.
func keyOf(s, rest string) Key {
	if s[len(namePrefix):] == rest {
		return Key{s}
	}
	return Key{namePrefix + rest}
}

// profile maps names as browsers do when they look one up; labels are checked here.
var profile = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true), idna.BidiRule())

// NormalizeName gives a name its one spelling: lower-case ASCII labels between single dots. It is idempotent.
func NormalizeName(s string) (string, error) {
	if plainName(s) {
		return s, nil
	}
	mapped, err := profile.ToASCII(strings.TrimSpace(s))
	if err != nil {
		return "", &KeyError{"name is not valid under IDNA"}
	}
	mapped = strings.ToLower(strings.TrimSuffix(mapped, "."))
	if again, err := profile.ToASCII(mapped); err != nil || again != mapped {
		return "", &KeyError{"name has no stable spelling under IDNA"}
	}
	return mapped, checkName(mapped)
}

// plainName reports whether s is spelt as it is kept, without asking IDNA: what looks like one of its labels is left to it.
func plainName(s string) bool {
	return !strings.Contains(s, "--") && checkName(s) == nil
}

// checkName holds a name to the rules of its one spelling.
func checkName(s string) error {
	if s == "" || len(s) > maxName {
		return &KeyError{"name must be 1 to 253 bytes"}
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return &KeyError{"name may hold letters, digits and hyphens between dots"}
			}
			continue
		}
		if n := i - start; n == 0 || n > maxLabel {
			return &KeyError{"each label of a name must be 1 to 63 bytes"}
		}
		if s[start] == '-' || s[i-1] == '-' {
			return &KeyError{"no label of a name may begin or end with a hyphen"}
		}
		start = i + 1
	}
	return nil
}

// String is the key's one spelling.
func (k Key) String() string { return k.text }

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.text == "" }

// MarshalText is String.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.text), nil }

// UnmarshalText is ParseKey.
func (k *Key) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKey(string(b))
	return err
}

// Versioned reports whether k names one version, which is written once.
func (k Key) Versioned() bool { return strings.IndexByte(k.text, '@') >= 0 }

// name is the name without its version; "" for a "b3:" key.
func (k Key) name() string {
	rest, ok := strings.CutPrefix(k.text, namePrefix)
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "@")
	return name
}
