package checkpoint

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxAhead is how far the clock of a witness may be ahead of the node's.
const maxAhead = 5 * time.Minute

// sigPrefix begins a signature line of a note.
const sigPrefix = "— "

// ErrWitness is returned for an answer of a witness that has no cosignature which holds.
var ErrWitness = errors.New("no cosignature that holds")

// Cosignature finds the witness's cosignature of t among the signature lines of an answer, as the line that is added to a note. Lines of other
// keys are passed over.
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

// splitLine reads a signature line; raw is nil for what is none.
func splitLine(line string) (name string, raw []byte) {
	body, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), sigPrefix)
	name, text, found := strings.Cut(body, " ")
	raw, err := strict.DecodeString(text)
	if !ok || !found || err != nil || len(raw) < 4 {
		return "", nil
	}
	return name, raw
}

// Witnessed is the signature lines of a note that are not the log's own.
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

// AddLine appends a cosignature to a note, in the place of an older one of the same key.
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

// Cosigned reports whether a note has a cosignature of w that holds.
func (w Witness) Cosigned(note []byte) bool {
	text, lines, found := strings.Cut(string(note), "\n\n")
	for l := range strings.Lines(lines) {
		name, raw := splitLine(l)
		if found && name == w.name && len(raw) > 4 && binary.BigEndian.Uint32(raw) == w.KeyHash() && w.Verify([]byte(text+"\n"), raw[4:]) {
			return true
		}
	}
	return false
}

// Whole checks that every signature line of a note holds: each is of a log key, as log or as its own witness, or of one of the witnesses.
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
			return fmt.Errorf("%w: the line of %.120q does not hold, or no signer set names that witness", ErrSigner, s.Name)
		}
	}
	return nil
}
