package name

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

// Bounds of a key in bytes: those of DNS for names and labels, and enough for any usual version.
const (
	maxName    = 253
	maxLabel   = 63
	maxVersion = 64
	maxKeyText = 4 * 1024 // of a key before normalisation, which may shorten letters outside ASCII
)

// Key is a lookup key in canonical form: "name:<fqdn>", "name:<fqdn>@<semver>" or "b3:<hex>". The
// zero Key is no key.
type Key struct{ text string }

// ParseKey parses a key and returns its canonical form. It returns a *KeyError if the key is
// invalid.
//
// A name is mapped by IDNA (UTS 46, non-transitional) and stored in ASCII; one trailing dot is
// removed. A version is SemVer 2.0 without build metadata.
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
		return Key{}, &KeyError{
			"version must be SemVer without build metadata, as 1.2.3 or 1.2.3-rc.1, of at most 64 bytes",
		}
	}
	return keyOf(s, name+"@"+version), nil
}

// keyOf returns the key of a normalised rest. It reuses s if s is already normalised.
func keyOf(s, rest string) Key {
	if s[len(namePrefix):] == rest {
		return Key{s}
	}
	return Key{namePrefix + rest}
}

// profile maps names as browsers do for lookups. Labels are checked here.
var profile = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true), idna.BidiRule())

// NormalizeName returns the canonical form of a name: lower-case ASCII labels between single dots.
// It is idempotent.
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

// plainName reports whether s is canonical without asking IDNA. Names with "--", which may be IDNA
// labels, are not.
func plainName(s string) bool {
	return !strings.Contains(s, "--") && checkName(s) == nil
}

// checkName returns a *KeyError unless s is a canonical name.
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

// String returns the canonical text of the key.
func (k Key) String() string { return k.text }

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.text == "" }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKey(string(b))
	return err
}

// Versioned reports whether k names a version, which is written once.
func (k Key) Versioned() bool { return strings.IndexByte(k.text, '@') >= 0 }

// name returns the name without its version, or "" for a "b3:" key.
func (k Key) Name() string {
	rest, ok := strings.CutPrefix(k.text, namePrefix)
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "@")
	return name
}
