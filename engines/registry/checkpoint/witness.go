package checkpoint

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrPolicy is returned for a witness policy without a usable quorum.
var ErrPolicy = errors.New("not a complete witness policy")

// noQuorum is the name of a quorum that needs no witness.
const noQuorum = "none"

// PolicyWitness is a witness of a policy. URL is "" for a witness that this node does not ask.
type PolicyWitness struct {
	Witness
	Local string // its name in the policy
	URL   string
}

// ID returns the name and the key hash of a witness, which together identify its key.
func (w Witness) ID() string { return fmt.Sprintf("%s+%08x", w.name, w.KeyHash()) }

// ParsePolicy reads the witnesses of a policy in the form of C2SP's tlog-policy. It does not read
// the lines "group" and "quorum"; [ReadPolicy] does.
func ParsePolicy(text string) (all []PolicyWitness, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0][0] == '#' || f[0] == "log" || f[0] == "group" || f[0] == "quorum":
		case f[0] == "witness" && (len(f) == 3 || len(f) == 4):
			w, err := ParseWitness(f[2])
			if err != nil {
				return nil, fmt.Errorf("witness policy, line %d: %w", n, err)
			}
			all = append(all, PolicyWitness{Witness: w, Local: f[1], URL: strings.Join(f[3:], "")})
		default:
			return nil, fmt.Errorf(
				"witness policy, line %d: want witness <name> <vkey> [<url>], group, quorum or log, not %.60q",
				n,
				line,
			)
		}
	}
	return all, nil
}

// Policy is a whole witness policy. It is immutable.
type Policy struct {
	Witnesses []PolicyWitness
	groups    map[string]group
	quorum    string // name of a witness or a group, or noQuorum
}

// group is met if at least need of its members are met.
type group struct {
	need    int
	members []string
}

// ReadPolicy parses a policy with its groups and its quorum. Each name is defined once and before
// its use, and is a member of one group at most. It returns ErrPolicy if there is no quorum line,
// more than one, or one with an undefined name.
func ReadPolicy(text string) (p Policy, err error) {
	if p.Witnesses, err = ParsePolicy(text); err != nil {
		return Policy{}, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	p.groups = map[string]group{}
	defined, used := map[string]bool{noQuorum: true}, map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "witness":
			err = define(defined, f[1])
		case "group":
			err = p.addGroup(f[1:], defined, used)
		case "quorum":
			err = p.setQuorum(f[1:], defined)
		}
		if err != nil {
			return Policy{}, fmt.Errorf("%w: line %d: %w", ErrPolicy, n, err)
		}
	}
	if p.quorum == "" {
		return Policy{}, fmt.Errorf("%w: it has no quorum line", ErrPolicy)
	}
	return p, nil
}

func define(defined map[string]bool, name string) error {
	if defined[name] {
		return fmt.Errorf("%.60q is defined twice", name)
	}
	defined[name] = true
	return nil
}

// addGroup reads the fields of a group line: a name, a threshold, and the members.
func (p *Policy) addGroup(f []string, defined, used map[string]bool) error {
	if len(f) < 3 {
		return errors.New("want group <name> <any|all|number> <member>")
	}
	g := group{members: f[2:]}
	switch f[1] {
	case "any":
		g.need = 1
	case "all":
		g.need = len(g.members)
	default:
		g.need, _ = strconv.Atoi(f[1]) // 0 is out of range
	}
	if g.need < 1 || g.need > len(g.members) {
		return fmt.Errorf("threshold %.20q of a group of %d", f[1], len(g.members))
	}
	for _, m := range g.members {
		if !defined[m] || m == noQuorum {
			return fmt.Errorf("member %.60q is not defined above", m)
		}
		if used[m] {
			return fmt.Errorf("member %.60q is in a group already", m)
		}
		used[m] = true
	}
	p.groups[f[0]] = g
	return define(defined, f[0])
}

func (p *Policy) setQuorum(f []string, defined map[string]bool) error {
	if len(f) != 1 || p.quorum != "" || !defined[f[0]] {
		return errors.New("want one line quorum <name>, of a witness or a group that is defined above, or none")
	}
	p.quorum = f[0]
	return nil
}

// Met reports whether the quorum is met by the witnesses for which holds returns true.
func (p Policy) Met(holds func(Witness) bool) bool {
	met := map[string]bool{noQuorum: true}
	for _, w := range p.Witnesses {
		met[w.Local] = holds(w.Witness)
	}
	return p.met(p.quorum, met)
}

// met reports whether a name is met. Groups refer only to names above them, so the recursion ends.
func (p Policy) met(name string, met map[string]bool) bool {
	g, ok := p.groups[name]
	if !ok {
		return met[name]
	}
	n := 0
	for _, m := range g.members {
		if p.met(m, met) {
			n++
		}
	}
	return n >= g.need
}

// Cosigned reports whether the cosignatures of a note meet the quorum.
func (p Policy) Cosigned(note []byte) bool {
	return p.Met(func(w Witness) bool { return w.Cosigned(note) })
}

// maxAhead is the most that the clock of a witness may be ahead of this one.
const maxAhead = 5 * time.Minute

// sigPrefix begins a signature line of a note.
const sigPrefix = "— "

// ErrWitness is returned for an answer of a witness without a valid cosignature.
var ErrWitness = errors.New("no cosignature that holds")

// Cosignature returns the cosignature of t by the witness among the signature lines of an answer,
// as the line to add to a note. It skips lines of other keys.
func (w Witness) Cosignature(t Tree, answer []byte, now time.Time) (line string, err error) {
	for l := range strings.Lines(string(answer)) {
		name, raw := splitLine(l)
		if name != w.name || len(raw) != 4+8+ed25519.SignatureSize || binary.BigEndian.Uint32(raw) != w.KeyHash() {
			continue
		}
		at := binary.BigEndian.Uint64(raw[4:])
		switch {
		case !w.Verify([]byte(t.Text()), raw[4:]):
			return "", fmt.Errorf("%w: it is of another checkpoint, or forged", ErrWitness)
		case at == 0 || at > uint64(now.Add(maxAhead).Unix()):
			return "", fmt.Errorf("%w: its time is %d s after 1970, now is %d", ErrWitness, at, now.Unix())
		}
		return sigPrefix + name + " " + base64.StdEncoding.EncodeToString(raw) + "\n", nil
	}
	return "", fmt.Errorf("%w: none is of the key that the policy names", ErrWitness)
}

// splitLine parses a signature line. raw is nil if it is not one.
func splitLine(line string) (name string, raw []byte) {
	body, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), sigPrefix)
	name, text, found := strings.Cut(body, " ")
	raw, err := strict.DecodeString(text)
	if !ok || !found || err != nil || len(raw) < 4 {
		return "", nil
	}
	return name, raw
}

// Witnessed returns the signature lines of a note that are not by the log itself.
func (s *Signed) Witnessed() string {
	_, lines, _ := strings.Cut(string(s.Note), "\n\n")
	var out strings.Builder
	for l := range strings.Lines(lines) {
		if !strings.HasPrefix(l, sigPrefix+s.Origin+" ") {
			out.WriteString(l)
		}
	}
	return out.String()
}

// AddLine appends a cosignature to a note, in place of an older one of the same key.
func AddLine(note []byte, line string) []byte {
	text, lines, _ := strings.Cut(string(note), "\n\n")
	out := []byte(text + "\n\n")
	name, key := splitLine(line)
	for l := range strings.Lines(lines) {
		if n, raw := splitLine(l); n != name || !slices.Equal(raw[:4], key[:4]) {
			out = append(out, l...)
		}
	}
	return append(out, line...)
}

// Cosigned reports whether a note has a valid cosignature of w.
func (w Witness) Cosigned(note []byte) bool {
	text, lines, found := strings.Cut(string(note), "\n\n")
	for l := range strings.Lines(lines) {
		name, raw := splitLine(l)
		if found && name == w.name && len(raw) > 4 && binary.BigEndian.Uint32(raw) == w.KeyHash() &&
			w.Verify([]byte(text+"\n"), raw[4:]) {
			return true
		}
	}
	return false
}

// Whole checks that every signature line of a note verifies: each is by a log key, as log or as its
// own witness, or by one of the witnesses.
func (k Keys) Whole(raw []byte, witnesses []Witness) error {
	n, _, err := k.open(raw)
	if err != nil {
		return err
	}
	known := slices.AppendSeq(slices.Clone(witnesses), maps.Values(k.byKey))
	for _, s := range n.UnverifiedSigs {
		sig, err := strict.DecodeString(s.Base64)
		if err != nil || !slices.ContainsFunc(known, func(w Witness) bool {
			return w.name == s.Name && w.KeyHash() == s.Hash && w.Verify([]byte(n.Text), sig[4:])
		}) {
			return fmt.Errorf("%w: the line of %.120q does not hold, or no signer set names that witness", ErrSigner,
				s.Name)
		}
	}
	return nil
}
