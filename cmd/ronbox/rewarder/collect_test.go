package rewarder

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/appliance/upstream"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines/fleet/usage"
	"ronbox/engines/index/name"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/rewarder/rverify"
)

// collectRig is a registry and the nodes that it names.
type collectRig struct {
	t        *testing.T
	registry *httptest.Server
	versions []document.Version
	nodes    map[string]*member
	epoch    uint64
	dir      string
}

// member is a node of the rig. change, if not nil, changes its statement before it is signed, and
// answer replaces the answer.
type member struct {
	rig    *collectRig
	id     string
	key    ed25519.PrivateKey
	server *httptest.Server
	rows   []usage.Row
	change func(*usage.Statement)
	answer func(rw http.ResponseWriter, signed []byte)
}

const hour = time.Hour

func rigGenesis() b3.Digest { return b3.Sum([]byte("genesis")) }

// newCollectRig begins a registry with nodes. Its one version is older than the epoch.
func newCollectRig(t *testing.T, names ...string) *collectRig {
	r := &collectRig{t: t, nodes: map[string]*member{}, epoch: usage.EpochOf(time.Now(), hour) - 2, dir: t.TempDir()}
	r.registry = httptest.NewServer(http.HandlerFunc(r.serveRegistry))
	t.Cleanup(r.registry.Close)
	for _, name := range names {
		r.add(name)
	}
	r.commit(time.Now().Add(-48*hour), "1h", names...)
	return r
}

func (r *collectRig) add(name string) *member {
	seed := b3.Sum([]byte(name))
	m := &member{rig: r, id: "node/" + name, key: ed25519.NewKeyFromSeed(seed[:])}
	m.server = httptest.NewTLSServer(m)
	r.t.Cleanup(m.server.Close)
	r.nodes[name] = m
	return m
}

func (m *member) identity() string { return string(name.PeerIDOf(m.key.Public().(ed25519.PublicKey))) }

func (m *member) ServeHTTP(rw http.ResponseWriter, q *http.Request) {
	epoch := uint64(0)
	if _, err := fmt.Sscanf(q.URL.Path, "/edge/usage/%d", &epoch); err != nil {
		http.NotFound(rw, q)
		return
	}
	s := usage.Statement{
		Genesis: rigGenesis(), Node: m.id, Identity: m.identity(), Incarnation: "i", Epoch: epoch, Length: hour, Head: 1,
		Rows: m.rows,
	}
	if m.change != nil {
		m.change(&s)
	}
	if signed := s.Sign(m.key); m.answer != nil {
		m.answer(rw, signed)
	} else {
		_, _ = rw.Write(signed)
	}
}

// commit adds a version with these nodes and a length of epochs.
func (r *collectRig) commit(at time.Time, length string, names ...string) {
	v := document.Version{SchemaVersion: record.SchemaVersion, Version: uint64(len(r.versions) + 1),
		PayloadB3: rigGenesis(), CommittedAt: record.FormatTime(at), Kind: "update", Epoch: 1}
	v.Items = append(v.Items, jsontext.Value(
		`{"id":"service/fleet","kind":"service","endpoint":"https://x.example","meta":{"epoch":"`+length+`"}}`))
	for _, name := range names {
		m := r.nodes[name]
		pin := upstream.PinOf(m.server.Certificate().RawSubjectPublicKeyInfo)
		v.Items = append(v.Items, jsontext.Value(fmt.Sprintf(
			`{"id":%q,"kind":"node","endpoint":%q,"meta":{"identity":%q,"spki":[%q],"services":["edge"]}}`,
			m.id, m.server.URL, m.identity(), pin.String())))
	}
	r.versions = append(r.versions, v)
}

func (r *collectRig) serveRegistry(rw http.ResponseWriter, q *http.Request) {
	n := uint64(0)
	var doc any = document.Head{Version: uint64(len(r.versions)), MinVersion: 1}
	if _, err := fmt.Sscanf(q.URL.Path, "/registry/%d", &n); err == nil {
		doc = r.versions[n-1]
	}
	raw, err := cli.Encode(doc)
	if err != nil {
		r.t.Error(err)
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(raw)
}

// collect runs the command and returns its exit code, its document and what it says.
func (r *collectRig) collect(args ...string) (code int, doc collection, said string) {
	r.t.Helper()
	var out, errs bytes.Buffer
	a := cli.New(strings.NewReader(""), &out, &errs, server.Build{})
	a.Env = nil
	root := &cobra.Command{Use: "ronbox", SilenceErrors: true, SilenceUsage: true}
	a.AddFlags(root)
	cli.Add(root, Command(a))
	line := append([]string{"--url", r.registry.URL, "--data-dir", r.t.TempDir(), "--json", "rewarder", "collect",
		fmt.Sprint(r.epoch), "--from-fleet", "--out", r.dir}, args...)
	code = a.Run(context.Background(), root, line)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
			r.t.Fatalf("%v: %s", err, out.String())
		}
	}
	return code, doc, out.String() + errs.String()
}

// shares returns the rows of usage.csv, read as run reads them. It is nil without the file.
func (r *collectRig) shares() map[string]string {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.dir, usageName))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := rverify.ReadCSV(f)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, row := range rows {
		out[row.Actor] = fmt.Sprint(row.Qty)
		if row.Metric != "bytes" {
			r.t.Errorf("metric %s", row.Metric)
		}
	}
	return out
}

// everyone lets each node of the rig attest 100 bytes of each other node.
func (r *collectRig) everyone() *collectRig {
	for _, m := range r.nodes {
		for _, other := range r.nodes {
			if other != m {
				m.rows = append(m.rows, usage.Row{Node: other.id, Asked: 60, Placed: 40, Objects: 2})
			}
		}
		slices.SortFunc(m.rows, func(a, b usage.Row) int { return strings.Compare(a.Node, b.Node) })
	}
	return r
}

func TestCollect(t *testing.T) {
	t.Parallel()
	r := newCollectRig(t, "a", "b", "c", "d").everyone()
	code, doc, said := r.collect()
	if code != 0 || doc.Attested != 1200 || doc.Counted != 1200 || doc.Head != 1 || len(doc.Statements) != 4 {
		t.Fatalf("exit %d, %+v, %s", code, doc, said)
	}
	if doc.HeadAt != r.versions[0].CommittedAt || doc.Genesis != rigGenesis() {
		t.Errorf("the version is not told: %+v", doc)
	}
	for name, m := range r.nodes {
		if got := r.shares()[m.id]; got != "300" {
			t.Errorf("%s: %s bytes", name, got)
		}
		raw, err := os.ReadFile(filepath.Join(r.dir, statementsName, name+".json"))
		if err == nil {
			_, err = usage.Open(raw, m.key.Public().(ed25519.PublicKey))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code, _, said := r.collect(); code != 0 || len(r.shares()) != 4 {
		t.Errorf("again: exit %d, %s", code, said)
	}
}

// A receiver that attests too much moves at most the share of a pair.
func TestOverReport(t *testing.T) {
	t.Parallel()
	r := newCollectRig(t, "a", "b", "c", "d").everyone()
	r.nodes["a"].rows[0].Asked = usage.MaxBytes - 1000 // of b
	code, doc, said := r.collect()
	sum := uint64(0)
	for _, n := range doc.Nodes {
		sum += n.Bytes
	}
	if code != 0 || len(doc.Cut) != 1 || doc.Cut[0].Counted > sum/5+1 || sum > 1300 {
		t.Errorf("exit %d, %+v, %s", code, doc, said)
	}
	if code, doc, _ = r.collect("--pair-cap", "100%"); code != 0 || doc.Counted != doc.Attested {
		t.Errorf("without a cap: exit %d, %+v", code, doc)
	}
}

// A statement that is not the wanted one is refused with the reason, and nothing is written until
// the node is left out. What others received from it still counts.
func TestRefusedStatements(t *testing.T) {
	t.Parallel()
	flip := func(rw http.ResponseWriter, signed []byte) {
		at := bytes.Index(signed, []byte(`"asked":"60"`))
		signed[at+9] = '9'
		_, _ = rw.Write(signed)
	}
	status := func(code int) func(http.ResponseWriter, []byte) {
		return func(rw http.ResponseWriter, _ []byte) { rw.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		change func(*usage.Statement)
		answer func(http.ResponseWriter, []byte)
		reason string
	}{
		"another epoch":    {func(s *usage.Statement) { s.Epoch-- }, nil, "epoch: is"},
		"another genesis":  {func(s *usage.Statement) { s.Genesis = b3.Sum(nil) }, nil, "genesis: is"},
		"another node":     {func(s *usage.Statement) { s.Node = "node/b" }, nil, "node: is"},
		"another identity": {func(s *usage.Statement) { s.Identity = "12D3KooWx" }, nil, "identity: is"},
		"another length":   {func(s *usage.Statement) { s.Length = 2 * hour }, nil, "length: is"},
		"a flipped bit":    {nil, flip, "the signature is not by the key"},
		"not final":        {nil, status(http.StatusConflict), "not final"},
		"none":             {nil, status(http.StatusNotFound), "has no statement"},
		"an error":         {nil, status(http.StatusInternalServerError), "does not answer"},
		"too long": {nil, func(rw http.ResponseWriter, _ []byte) {
			_, _ = rw.Write(make([]byte, usage.MaxSize+1))
		}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newCollectRig(t, "a", "b", "c", "d").everyone()
			r.nodes["a"].change, r.nodes["a"].answer = tt.change, tt.answer
			code, _, said := r.collect()
			if code != exitMissing || !strings.Contains(said, tt.reason) || r.shares() != nil {
				t.Fatalf("exit %d, %s, %v", code, said, r.shares())
			}
			code, _, said = r.collect("--without", "node/a", "--pair-cap", "100%")
			if code != 0 || r.shares()["node/a"] != "300" || r.shares()["node/b"] != "200" {
				t.Fatalf("without it: exit %d, %s, %v", code, said, r.shares())
			}
		})
	}
}

// What a node attests about itself and about others than members does not count.
func TestSelfReport(t *testing.T) {
	t.Parallel()
	r := newCollectRig(t, "a", "b", "c", "d").everyone()
	a := r.nodes["a"]
	a.rows = append([]usage.Row{{Node: "node/a", Asked: 1 << 50, Objects: 1}}, a.rows...)
	a.rows = append(a.rows, usage.Row{Node: "node/x", Asked: 1 << 50, Objects: 1})
	if code, doc, said := r.collect(); code != 0 || doc.Attested != 1200 || r.shares()["node/a"] != "300" ||
		r.shares()["node/x"] != "" {
		t.Errorf("exit %d, %+v, %s", code, doc, said)
	}
}

// Two signed statements of one node about one epoch are both kept, and nothing is counted.
func TestTwoStatements(t *testing.T) {
	t.Parallel()
	r := newCollectRig(t, "a", "b", "c", "d").everyone()
	if code, _, said := r.collect(); code != 0 {
		t.Fatal(code, said)
	}
	r.nodes["a"].rows[0].Asked++
	for range 2 {
		code, doc, said := r.collect()
		evidence := doc.Statements[0].Evidence
		if code != exitDiffer || len(evidence) != 2 || !strings.Contains(said, "node/a") || r.shares() != nil {
			t.Fatalf("exit %d, %+v, %s", code, doc.Statements[0], said)
		}
		var both []string
		for _, file := range evidence {
			raw, err := os.ReadFile(file)
			if err == nil {
				_, err = usage.Open(raw, r.nodes["a"].key.Public().(ed25519.PublicKey))
			}
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, string(raw))
		}
		if both[0] == both[1] {
			t.Error("the evidence is the same file twice")
		}
	}
	r.epoch--
	if code, _, said := r.collect(); code != cli.ExitFailed || !strings.Contains(said, "no statement of") {
		t.Errorf("the folder of another epoch: exit %d, %s", code, said)
	}
}

// The nodes are those of the last version before the end of the epoch, under the length of that
// version.
func TestVersionOfEpoch(t *testing.T) {
	t.Parallel()
	r := newCollectRig(t, "a", "b", "c", "d", "e").everyone()
	r.versions = nil
	_, end := usage.Window(r.epoch, hour)
	r.commit(end.Add(-48*hour), "1h", "a", "b")
	r.commit(end.Add(-time.Second), "1h", "a", "b", "c", "d")
	r.commit(end, "1h", "a", "e")
	r.commit(end.Add(time.Second), "24h", "e")
	code, doc, said := r.collect()
	if code != 0 || doc.Head != 2 || doc.Attested != 1200 || len(r.shares()) != 4 {
		t.Errorf("exit %d, %+v, %s", code, doc, said)
	}
	if code, _, said := r.collect("--without", "node/e"); code != cli.ExitUsage {
		t.Errorf("a node of another version: exit %d, %s", code, said)
	}
	r.epoch += 2
	if code, _, said := r.collect(); code != exitMissing || !strings.Contains(said, "not final before") {
		t.Errorf("a running epoch: exit %d, %s", code, said)
	}
	r.epoch = 1
	if code, _, said := r.collect(); code != cli.ExitFailed || !strings.Contains(said, "no version") {
		t.Errorf("an epoch before the registry: exit %d, %s", code, said)
	}
}
