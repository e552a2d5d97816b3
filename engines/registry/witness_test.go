package registry_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// witness is a complete witness: it cosigns any log that extends the one it has seen.
type witness struct {
	*httptest.Server
	name string
	key  ed25519.PrivateKey

	mu   sync.Mutex
	size int64 // guarded by mu, as are root and asked
	root tlog.Hash
	asks []string // first lines
}

func newWitness(t *testing.T, name string) *witness {
	t.Helper()
	w := &witness{name: name, key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))}
	w.Server = httptest.NewServer(http.HandlerFunc(w.answer))
	t.Cleanup(w.Close)
	return w
}

func (w *witness) hash() []byte {
	sum := sha256.Sum256(append([]byte(w.name+"\n\x04"), w.key.Public().(ed25519.PublicKey)...))
	return sum[:4]
}

// policy returns a policy with this witness alone.
func (w *witness) policy() string {
	key := append([]byte{4}, w.key.Public().(ed25519.PublicKey)...)
	return fmt.Sprintf("# one\nwitness w %s+%x+%s %s/\nquorum w\n", w.name, w.hash(),
		base64.StdEncoding.EncodeToString(key), w.URL)
}

// cosign is the line of the witness for a text.
func (w *witness) cosign(text string, at time.Time) string {
	raw := binary.BigEndian.AppendUint64(w.hash(), uint64(at.Unix()))
	raw = append(raw, ed25519.Sign(w.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at.Unix(), text))...)
	return fmt.Sprintf("— %s %s\n", w.name, base64.StdEncoding.EncodeToString(raw))
}

func (w *witness) answer(out http.ResponseWriter, q *http.Request) {
	text, old, proof, err := readAdd(q)
	w.mu.Lock()
	defer w.mu.Unlock()
	tree, treeErr := checkpoint.ParseText(text)
	w.asks = append(w.asks, fmt.Sprintf("old %d of %d", old, tree.Size))
	switch {
	case err != nil || treeErr != nil || q.URL.Path != "/add-checkpoint" || q.Method != http.MethodPost:
		out.WriteHeader(http.StatusBadRequest)
	case old != w.size:
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(out, "%d\n", w.size)
	case old > 0 && old == int64(tree.Size) && tree.Root != w.root,
		old > 0 && old < int64(tree.Size) && tlog.CheckTree(proof, int64(tree.Size), tree.Root, old, w.root) != nil:
		out.WriteHeader(http.StatusUnprocessableEntity)
	default:
		w.size, w.root = int64(tree.Size), tree.Root
		_, _ = io.WriteString(out, "— other.example AAAAAAAA\n"+w.cosign(text, time.Now()))
	}
}

// readAdd reads the request for a cosignature.
func readAdd(q *http.Request) (text string, old int64, proof tlog.TreeProof, err error) {
	raw, err := io.ReadAll(q.Body)
	head, note, _ := strings.Cut(string(raw), "\n\n")
	lines := strings.Split(head, "\n")
	if err == nil {
		old, err = strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	}
	for _, l := range lines[1:] {
		h, bad := tlog.ParseHash(l)
		if bad != nil {
			err = bad
		}
		proof = append(proof, h)
	}
	text, _, _ = strings.Cut(note, "\n\n")
	return text + "\n", old, proof, err
}

func (w *witness) asked() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.asks, ", ")
}

// extended reports whether w was asked for size, and each time from the size before.
func (w *witness) extended(size int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := 0
	for _, ask := range w.asks {
		var old, now int
		if _, err := fmt.Sscanf(ask, "old %d of %d", &old, &now); err != nil || old != was {
			return false
		}
		was = now
	}
	return was == size
}

// witnessedRig returns a log with a witness in its signer set and a long timeout.
func witnessedRig(t *testing.T, policy string,
	change ...func(*registry.Config)) (*registrytest.Rig, registrytest.Signers) {
	t.Helper()
	patient := func(c *registry.Config) { c.Witness.Enabled, c.Witness.Timeout = true, unit.Duration(30*time.Second) }
	r, s := newLogRig(t, append([]func(*registry.Config){patient}, change...)...)
	s.Policy = policy
	r.Genesis(s)
	return r, s
}

// waitWitness waits until a witness was asked with that result.
func waitWitness(r *registrytest.Rig, result string) {
	r.T.Helper()
	r.WaitFor("a witness that has "+result,
		func() bool { return r.Metric("registry_witness_total", "result", result) > 0 })
}

// cosigned waits until the checkpoint over HEAD has a line of w.
func cosigned(r *registrytest.Rig, w *witness) string {
	r.T.Helper()
	r.WaitFor("a cosignature", func() bool {
		return strings.Contains(string(r.Engine.Pub().Latest.Load().Note),
			"— "+w.name+" ")
	})
	return string(r.Engine.Pub().Latest.Load().Note)
}

// Each archived checkpoint is cosigned, served, kept and exported; the lines are verified with the
// log, and no bit of them may flip.
func TestWitnessCosigns(t *testing.T) {
	t.Parallel()
	w := newWitness(t, "w.example")
	r, s := witnessedRig(t, w.policy())
	cover(r)
	cosigned(r, w)
	commitDeltas(r, s, 5)
	cover(r)
	note := cosigned(r, w)
	if !w.extended(6) {
		t.Errorf("asked: %s", w.asked())
	}
	archived, err := r.Engine.ArchivedCheckpoints(r.Ctx(), 0, 2)
	if err != nil || len(archived) != 2 || string(archived[0]) != note ||
		strings.Count(string(archived[1]), "— w.example ") != 1 {
		t.Errorf("archived: %q, %v", archived, err)
	}

	r.Advance(r.Config.Storage.CheckpointInterval.D() + time.Second)
	r.WaitFor("a later signature", func() bool { return !bytes.Equal(r.Engine.Pub().Latest.Load().Note, []byte(note)) })
	if again := cosigned(r, w); strings.Count(again, "— w.example ") != 1 {
		t.Errorf("signed again: %s", again)
	}
	r.Stop()
	r.Open()
	r.Start()
	cover(r) // of the same versions, after a restart
	r.WaitFor("another cosignature", func() bool { return strings.HasSuffix(w.asked(), ", old 0 of 6, old 6 of 6") })
	waitWitness(r, "cosigned")
	if note := cosigned(r, w); strings.Count(note, "— w.example ") != 1 {
		t.Errorf("a second line of one witness: %s", note)
	}
	genesis := r.Engine.Head().GenesisB3
	r.Stop()
	if rep := verifiedFile(t, r.Path, genesis); !rep.OK {
		t.Error(rep.Problem)
	}
	dir := exported(r)
	shown, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil || !bytes.Contains(shown, []byte("\n— w.example ")) {
		t.Errorf("exported: %s, %v", shown, err)
	}
	if p := verifyExport(t, dir); p != nil {
		t.Errorf("the export: %v", p)
	}
	err = readFile(t, r.Path, func(rd store.Reader) error {
		raw, _ := tables.Checkpoints.Get(rd, 6)
		step := 1
		if testing.Short() { // the check of a file is the work of one goroutine
			step = 97
		}
		for bit := 8 * bytes.Index(raw, []byte("— w.example")); bit < 8*len(raw); bit += step {
			f := flipped{Reader: rd, flip: flip{bucket: tables.CheckpointBucket, key: store.U64().Append(nil, 6),
				bit: bit}}
			if rep, err := tables.Verify(t.Context(), f, rverify.Options{Genesis: genesis}); err != nil || rep.OK {
				t.Errorf("bit %d of the cosigned note flipped unseen, %v", bit, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// If witnesses are disabled, the registry does not contact any.
func TestWitnessOff(t *testing.T) {
	t.Parallel()
	w := newWitness(t, "w.example")
	r, s := newLogRig(t, func(c *registry.Config) { c.Witness.Timeout = unit.Duration(30 * time.Second) })
	s.Policy = w.policy()
	r.Genesis(s)
	cover(r)
	r.Stop()
	if got := w.asked(); got != "" {
		t.Errorf("asked: %s", got)
	}
	r.Config.Witness.Enabled = true
	r.Open()
	r.Start()
	cover(r)
	cosigned(r, w)
}

// No answer of a witness that lies, fails or is slow is stored, and commits and checkpoints go on.
func TestWitnessesThatLie(t *testing.T) {
	t.Parallel()
	conflict := func(size string) func(*witness, string, http.ResponseWriter) {
		return func(_ *witness, _ string, out http.ResponseWriter) {
			out.Header().Set("Content-Type", "text/x.tlog.size")
			out.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(out, size)
		}
	}
	says := func(line func(w *witness, text string) string) func(*witness, string, http.ResponseWriter) {
		return func(w *witness, text string, out http.ResponseWriter) { _, _ = io.WriteString(out, line(w, text)) }
	}
	status := func(code int) func(*witness, string, http.ResponseWriter) {
		return func(_ *witness, _ string, out http.ResponseWriter) { out.WriteHeader(code) }
	}
	for _, tt := range []struct {
		doc, result string
		answer      func(w *witness, text string, out http.ResponseWriter)
	}{
		{"another key", "refused", says(func(w *witness, text string) string {
			other := &witness{name: w.name, key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32))}
			return other.cosign(text, time.Now())
		})},
		{"a forged signature", "refused", says(func(w *witness, text string) string {
			raw, _ := base64.StdEncoding.DecodeString(strings.Fields(w.cosign(text, time.Now()))[2])
			raw[len(raw)-1] ^= 1
			return "— " + w.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
		})},
		{"another size", "refused", says(func(w *witness, text string) string {
			return w.cosign(strings.Replace(text, "\n", "\n2", 1), time.Now())
		})},
		{"another name", "refused", says(func(w *witness, text string) string {
			return strings.Replace(w.cosign(text, time.Now()), w.name, "x.example", 1)
		})},
		{"of tomorrow", "refused", says(func(w *witness,
			text string) string {
			return w.cosign(text, time.Now().Add(24*time.Hour))
		})},
		{"of no time", "refused", says(func(w *witness,
			text string) string {
			return w.cosign(text, time.Unix(0, 0))
		})},
		{"of a time before all", "refused", says(func(w *witness,
			text string) string {
			return w.cosign(text, time.Unix(-1, 0))
		})},
		{"garbage", "refused", says(func(*witness,
			string) string {
			return "— w.example\n\n\x00— — —\n— w.example AAAA\n"
		})},
		{"nothing", "refused", says(func(*witness, string) string { return "" })},
		{"too long", "refused", says(func(w *witness, text string) string {
			return w.cosign(text, time.Now()) + strings.Repeat("x", 64<<10)
		})},
		{"a conflict that does not end", "refused", conflict("0\n")},
		{"a conflict of no size", "refused", conflict("-1\n")},
		{"forbidden", "refused", status(http.StatusForbidden)},
		{"a redirect", "refused", func(w *witness, _ string, out http.ResponseWriter) {
			out.Header().Set("Location", w.URL)
			out.WriteHeader(http.StatusPermanentRedirect)
		}},
		{"ill", "unreachable", status(http.StatusInternalServerError)},
		{"cut off", "unreachable", func(*witness, string, http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			w := newWitness(t, "w.example")
			w.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
				text, _, _, _ := readAdd(q)
				tt.answer(w, text, out)
			})
			r, s := witnessedRig(t, w.policy())
			cover(r)
			waitWitness(r, tt.result)
			unwitnessed(t, r, s)
		})
	}
}

// A witness that does not answer delays no commit, no checkpoint and no shutdown.
func TestWitnessThatIsSlow(t *testing.T) {
	t.Parallel()
	w := newWitness(t, "w.example")
	gone := make(chan struct{}) //rawchan: the end of a test's server
	w.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gone })
	defer close(gone)
	r, s := witnessedRig(t, w.policy())
	cover(r)
	unwitnessed(t, r, s)
	late, _ := witnessedRig(t, w.policy(), func(c *registry.Config) { c.Witness.Timeout = unit.Duration(10 * time.Millisecond) })
	cover(late)
	waitWitness(late, "unreachable")
}

// unwitnessed continues the log, which has no line of a witness, and stops.
func unwitnessed(t *testing.T, r *registrytest.Rig, s registrytest.Signers) {
	t.Helper()
	commitDeltas(r, s, 2)
	cover(r)
	r.Stop()
	if rep := verifiedFile(t, r.Path, r.Engine.Head().GenesisB3); !rep.OK {
		t.Error(rep.Problem)
	}
	err := readFile(t, r.Path, func(rd store.Reader) error {
		for size, note := range tables.Checkpoints.All(rd) {
			if bytes.Count(note, []byte("\n— ")) != 2 {
				t.Errorf("of %d versions is kept: %s", size, note)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
