package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
)

// secretsOf returns each line of the secret files in the folders, and the other spellings of
// their bytes.
func secretsOf(t *testing.T, dirs ...string) (out []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".key") && !strings.HasSuffix(path, ".token") {
				return err
			}
			raw, err := os.ReadFile(path)
			for line := range strings.Lines(string(raw)) {
				line = strings.TrimSpace(line)
				if len(line) < 16 || strings.HasPrefix(line, "-----") {
					continue
				}
				out = append(out, line, base64.StdEncoding.EncodeToString([]byte(line)))
				if b, err := hex.DecodeString(line); err == nil {
					out = append(out, string(b), base64.StdEncoding.EncodeToString(b))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// unpack returns the files of a bundle by name. Profiles are decompressed.
func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = archive
		if strings.HasSuffix(h.Name, ".gz") {
			if r, err = gzip.NewReader(archive); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Errorf("%s: mode %o, %v", h.Name, h.Mode, err)
		}
		out[strings.TrimPrefix(h.Name, "ronbox-bundle/")] = raw
	}
}

// bundled is the output of doctor --bundle --json.
type bundled struct {
	Bytes int64
	Files []struct {
		Name  string
		Bytes int
	}
	Missing []struct{ Name, Reason string }
}

// makeBundle has doctor write a bundle. It checks the list of its files, its mode, its JSON, and
// that the secrets are not in it.
func makeBundle(t *testing.T, b *box, secrets []string) (map[string][]byte, bundled) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var doc bundled
	r := ronboxWith(t, t.Context(), b.env, "", b.args("doctor", "--bundle", file, "--json")...)
	if err := json.Unmarshal([]byte(r.stdout), &doc, json.MatchCaseInsensitiveNames(true)); err != nil || r.code != 0 {
		t.Fatalf("exit %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 || st.Size() != doc.Bytes {
		t.Errorf("%v, %v: want mode 0600 and %d bytes", st.Mode(), err, doc.Bytes)
	}
	files := unpack(t, file)
	if len(files) != len(doc.Files) {
		t.Errorf("%d files, but %d are listed", len(files), len(doc.Files))
	}
	readme := string(files["README.txt"])
	for _, f := range doc.Files {
		raw, found := files[f.Name]
		if !found || f.Name != "README.txt" && !strings.Contains(readme, f.Name+" ") {
			t.Errorf("%s: in the bundle %t; README.txt should list it", f.Name, found)
		}
		if strings.HasSuffix(f.Name, ".json") {
			var any any
			if err := json.Unmarshal(raw, &any); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
		for _, secret := range secrets {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s contains a secret: %.12q…", f.Name, secret)
			}
		}
	}
	again := ronboxWith(t, t.Context(), b.env, "", b.args("doctor", "--bundle", file)...)
	if again.code != cli.ExitFailed || !strings.Contains(again.stderr, "exists") {
		t.Errorf("a second bundle in the same file: exit %d, %s", again.code, again.stderr)
	}
	return files, doc
}

// A bundle of a running node has everything, and one of a stopped node what the file and the
// configuration tell. Neither has the token, the node secret, a signing key, the key of the
// certificate, or the token for a peer.
func TestBundleHasNoSecrets(t *testing.T) {
	skipRaceOnly(t)
	b := newBox(t)
	planted := t.TempDir()
	cert, key := filepath.Join(planted, "node.pem"), filepath.Join(planted, "tls.key")
	newAuthority(t).issue(t, 7, cert, key)
	peer := filepath.Join(planted, "peer.token")
	if err := os.WriteFile(peer, []byte("planted-token-for-a-peer-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "RONBOX_TLS__ENABLED=true", "RONBOX_TLS__CERT_PATH="+cert, "RONBOX_TLS__KEY_PATH="+key,
		"RONBOX_INDEX__PEERS=https://127.0.0.1:1#here", fmt.Sprintf(`RONBOX_INDEX__PEER_TOKENS={"127.0.0.1:1" = %q}`, peer))
	p := b.start(t)
	secrets := secretsOf(t, b.dir, planted)
	if len(secrets) < 12 {
		t.Fatalf("only %d secrets were found", len(secrets))
	}
	files, doc := makeBundle(t, b, secrets)
	if len(doc.Missing) > 0 {
		t.Errorf("missing: %v", doc.Missing)
	}
	if config := string(files["config.txt"]); !strings.Contains(config, key) {
		t.Errorf("config.txt does not name the file of the key:\n%s", config)
	}
	if !bytes.Contains(files["metrics.txt"], []byte("ronbox_build_info")) {
		t.Error("metrics.txt has no metrics")
	}
	for _, profile := range []string{"goroutine.pb.gz", "heap.pb.gz"} {
		if !bytes.Contains(files[profile], []byte("ronbox/")) {
			t.Errorf("%s has no functions of the program", profile)
		}
	}
	p.signal(t, os.Interrupt)

	stopped, doc := makeBundle(t, b, secrets)
	if len(doc.Missing) > 0 {
		t.Errorf("of a stopped node, missing: %v", doc.Missing)
	}
	var stats nodeapi.DBStats
	decode(t, string(stopped["db-stats.json"]), &stats)
	if !slices.ContainsFunc(stats.Buckets, func(s nodeapi.BucketStats) bool { return s.Rows > 0 && s.Bytes > 0 }) {
		t.Error("db-stats.json of a stopped node has no sizes")
	}
	if !strings.Contains(string(stopped["README.txt"]), "was not running") || stopped["metrics.txt"] != nil {
		t.Error("the bundle of a stopped node does not say so")
	}
}

// A bundle is written even if the configuration has a fault and there is no database.
func TestBundleWithoutAnything(t *testing.T) {
	b := &box{dir: filepath.Join(t.TempDir(), "none"), env: append(os.Environ(), "RONBOX_STORE__MAX_BYTES=much")}
	files, doc := makeBundle(t, b, nil)
	if files["binary.json"] == nil || files["doctor.json"] == nil || len(doc.Missing) == 0 {
		t.Errorf("files %v, missing %v", doc.Files, doc.Missing)
	}
}
