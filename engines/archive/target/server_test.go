package target_test

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/engines/archive/target"
)

func TestBucket(t *testing.T) {
	for text, want := range map[string]string{
		"s3://bucket": "bucket|", "s3://bucket/": "bucket|", "s3://bucket/a": "bucket|a/", "s3://bucket/a/b/": "bucket|a/b/",
		"s3://b.u-cket/a%20b": "b.u-cket|a b/", "s3://bucket//a": "", "s3://bucket/a//b": "", "s3://bucket/a/../b": "",
		"s3://bucket/./a": "", "s3:bucket": "", "s3://": "", "s3://b": "", "s3://key:secret@bucket": "", "s3://bucket:9/a": "",
		"s3://bucket?x=1": "", "s3://bucket#x": "", "s3://BUCKET_": "", "file:///a": "", "": "",
	} {
		bucket, prefix, err := target.Bucket(text)
		if got := strings.Trim(bucket+"|"+prefix, "|"); got != strings.Trim(want, "|") || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// Without TLS, only encrypted objects leave the machine.
func TestEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://s3.example.org": "both", "https://10.0.0.1:9000/": "both", "http://127.0.0.1:9000": "both",
		"http://[::1]:9000": "both", "http://localhost": "both", "http://10.0.0.1:9000": "encrypted",
		"http://s3.example.org": "encrypted", "": "", "s3.example.org": "", "ftp://s3.example.org": "",
		"https://key:planted@s3.example.org": "", "https://s3.example.org/path": "", "https://s3.example.org?x": "",
		"https://": "", "https://%zz": "",
	} {
		plain, encrypted := target.CheckEndpoint(endpoint, false), target.CheckEndpoint(endpoint, true)
		if (plain == nil) != (want == "both") || (encrypted == nil) != (want != "") {
			t.Errorf("%q: %v, %v", endpoint, plain, encrypted)
		}
		if plain != nil {
			secretless(t, plain.Error())
		}
	}
}

// The file is read again once it has changed, and must be of its owner alone.
func TestCredentials(t *testing.T) {
	f := &fakeS3{objects: map[string]fakeObject{}, key: "FIRST"}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	path := credentialsFile(t, filepath.Join(dir, "one"), "FIRST")
	d, err := target.Parse("s3://bucket", target.Server{
		Endpoint: srv.URL, Region: "us-east-1", Credentials: func() string { return path },
	})
	if err != nil {
		t.Fatal(err)
	}
	open(t, d)
	f.set(func() { f.key = "SECOND" })
	if err := d.Create(t.Context(), "a", file(t, "x")); !errors.Is(err, target.ErrDenied) {
		t.Error(err)
	}
	credentialsFile(t, path, "SECOND")
	create(t, d, "b")
	f.set(func() { f.key = "THIRD" })
	path = credentialsFile(t, filepath.Join(dir, "two"), "THIRD")
	create(t, d, "c")
	for what, text := range map[string]string{
		"empty": "", "no default": "[x]\naws_access_key_id = PLANTED\naws_secret_access_key = planted\n",
		"half": "[default]\naws_secret_access_key = planted\n", "long": "[default]\n" + strings.Repeat("planted", 20_000),
		"comments": "[default]\n#aws_access_key_id = PLANTED\n; aws_secret_access_key = planted\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := d.Create(t.Context(), "d", file(t, "x"))
		if !errors.Is(err, target.ErrDenied) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		secretless(t, err.Error())
	}
	credentialsFile(t, path, "THIRD")
	create(t, d, "d")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "three")
	if err := d.Create(t.Context(), "e", file(t, "x")); !errors.Is(err, target.ErrDenied) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	path = filepath.Join(dir, "two")
	if err := d.Create(t.Context(), "e", file(t, "x")); !errors.Is(err, target.ErrDenied) ||
		!strings.Contains(err.Error(), "0640") {
		t.Error(err)
	}
}

// A server is trusted by the system's certificates and those of the CA file.
func TestCAFile(t *testing.T) {
	srv := quiet(httptest.NewUnstartedServer(&fakeS3{objects: map[string]fakeObject{}}))
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	file := credentialsFile(t, filepath.Join(dir, "credentials"), accessKey)
	ca := filepath.Join(dir, "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]error{"": target.ErrUnreachable, ca: nil} {
		d, err := target.Parse("s3://bucket", target.Server{
			Endpoint: srv.URL, Region: "us-east-1", CAFile: from, Credentials: func() string { return file },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Open(t.Context(), true); !errors.Is(err, want) {
			t.Errorf("%q: %v", from, err)
		}
	}
	for _, bad := range []string{file, filepath.Join(dir, "none")} {
		if _, err := target.Parse("s3://bucket", target.Server{Endpoint: srv.URL, CAFile: bad}); err == nil ||
			!strings.Contains(err.Error(), bad) {
			t.Error(err)
		}
	}
}
