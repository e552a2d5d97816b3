// Package judge lets programs of other hands check what the registry gives out: the fsck of transparency-dev/tessera walks an export,
// golang.org/x/mod/sumdb/note opens its checkpoint, and transparency-dev/merkle verifies the proofs of a running node. It is a module of
// its own, so that none of them comes into ronbox. Run it with `go test ./...` in this directory.
package judge

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
)

// versions make a log with a full tile, a partial one, and a tile above them.
const versions = 300

// ronbox is the program built from this tree.
func ronbox(t *testing.T) (bin string, run func(args ...string) []byte) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "ronbox")
	build := exec.Command("go", "build", "-o", bin, "./cmd/ronbox")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin, func(args ...string) []byte {
		t.Helper()
		var stderr bytes.Buffer
		cmd := exec.Command(bin, args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("ronbox %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
		}
		return out
	}
}

func parse[T any](t *testing.T, raw []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func TestForeignJudges(t *testing.T) {
	dir, err := os.MkdirTemp("", "jr") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("RONBOX_SERVER__BIND", "127.0.0.1:0")
	bin, run := ronbox(t)
	data := filepath.Join(dir, "d")
	on := func(args ...string) []byte { return run(append([]string{"--data-dir", data}, args...)...) }
	made := parse[struct {
		SignerKey string `json:"signer_key"`
		Genesis   string
	}](t, on("init", "--dev", "--json"))
	vkey := parse[struct{ VKey string }](t, on("registry", "log-key", "--json")).VKey
	stop := serve(t, bin, data)
	apply := []string{"registry", "apply", "-q", "--key", made.SignerKey}
	for i := range versions {
		file := filepath.Join(dir, fmt.Sprint(i))
		line := fmt.Sprintf("{\"id\":\"s%d\",\"kind\":\"service\",\"meta\":{\"v\":%d}}\n", i%7, i)
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		apply = append(apply, file)
	}
	on(apply...)
	old := parse[checkpoint](t, on("registry", "checkpoint", "--now", "--json"))
	last := filepath.Join(dir, "last")
	if err := os.WriteFile(last, []byte("{\"id\":\"z\",\"kind\":\"node\",\"meta\":{}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	on("registry", "apply", "-q", "--key", made.SignerKey, last)
	now := parse[checkpoint](t, on("registry", "checkpoint", "--now", "--json"))
	status := parse[struct{ URL string }](t, on("status", "--json"))
	checkProofs(t, status.URL, old, now)
	stop()
	out := filepath.Join(dir, "log")
	on("registry", "export", "--out", out)
	run("registry", "verify", "--export", out, "--genesis", made.Genesis)

	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(out, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(raw, note.VerifierList(verifier)); err != nil {
		t.Errorf("the checkpoint: %v", err)
	}
	judge := fsck.New(verifier.Name(), verifier, client.FileFetcher{Root: out}, leaves, fsck.Opts{N: 1})
	if err := judge.Check(context.Background()); err != nil {
		t.Errorf("fsck: %v", err)
	}
}

// leaves hashes the entries of a bundle.
func leaves(bundle []byte) (hashes [][]byte, err error) {
	for len(bundle) > 0 {
		if len(bundle) < 2 || len(bundle)-2 < int(binary.BigEndian.Uint16(bundle)) {
			return nil, io.ErrUnexpectedEOF
		}
		n := 2 + int(binary.BigEndian.Uint16(bundle))
		hashes, bundle = append(hashes, rfc6962.DefaultHasher.HashLeaf(bundle[2:n])), bundle[n:]
	}
	return hashes, nil
}

type checkpoint struct {
	Size uint64
	Root []byte
}

// checkProofs verifies what the node proves.
func checkProofs(t *testing.T, url string, old, now checkpoint) {
	t.Helper()
	get := func(path string) []byte {
		t.Helper()
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		raw, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v: %s", path, res.StatusCode, err, raw)
		}
		return raw
	}
	type proven struct{ Hashes [][]byte }
	for _, v := range []uint64{1, 2, 100, 256, 257, old.Size, now.Size} {
		entry := get("/registry/" + strconv.FormatUint(v, 10) + "/entry")
		p := parse[proven](t, get(fmt.Sprintf("/registry/proof/inclusion?version=%d", v)))
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, v-1, now.Size, rfc6962.DefaultHasher.HashLeaf(entry), p.Hashes, now.Root); err != nil {
			t.Errorf("inclusion of version %d: %v", v, err)
		}
	}
	p := parse[proven](t, get(fmt.Sprintf("/registry/proof/consistency?from=%d", old.Size)))
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, old.Size, now.Size, p.Hashes, old.Root, now.Root); err != nil {
		t.Errorf("consistency of %d with %d: %v", old.Size, now.Size, err)
	}
	type placed struct {
		Index  uint64
		Item   json.RawMessage
		Hashes [][]byte
	}
	item := parse[struct {
		Count     uint64
		ItemsRoot string `json:"items_root"`
		Item      *placed
	}](t, get(fmt.Sprintf("/registry/%d/item?id=z", now.Size)))
	root, err := hex.DecodeString(strings.TrimPrefix(item.ItemsRoot, "sha256:"))
	if err != nil || item.Item == nil {
		t.Fatalf("item: %+v, %v", item, err)
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(item.Item.Item)
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, item.Item.Index, item.Count, leaf, item.Item.Hashes, root); err != nil {
		t.Errorf("the descriptor: %v", err)
	}
}

// serve runs the node until the function it answers is called.
func serve(t *testing.T, bin, data string) (stop func()) {
	t.Helper()
	cmd := exec.Command(bin, "--data-dir", data, "serve")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if out, err := exec.Command(bin, "--data-dir", data, "status", "--json").Output(); err == nil && bytes.Contains(out, []byte(`"ready":true`)) {
			return stop
		}
	}
	t.Fatal("the node does not get ready")
	return stop
}
