package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"strings"
	"time"
)

// imageUser owns the files of the node in the image. Debian and others give no account this number.
const imageUser = 65532

// Media types of the OCI image format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type imageConfig struct {
	platform
	Created time.Time      `json:"created"`
	Config  map[string]any `json:"config"`
	RootFS  imageRootFS    `json:"rootfs"`
}

type imageRootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// layout holds the blobs of an image layout.
type layout struct{ files []file }

// add stores a blob and returns its descriptor.
func (l *layout) add(mediaType string, body []byte) descriptor {
	digest := digestOf(body)
	l.files = append(l.files, regular("blobs/"+strings.Replace(digest, ":", "/", 1), body))
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(body)}
}

// addJSON stores v as a blob.
func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, body), nil
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// image returns an OCI image layout in a tar archive. Its one reference is the version, an index of
// the images of all architectures.
func (r *release) image() ([]byte, error) {
	l := &layout{}
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, b := range r.binaries {
		d, err := r.addImage(l, b)
		if err != nil {
			return nil, err
		}
		all.Manifests = append(all.Manifests, d)
	}
	top, err := l.addJSON(typeIndex, all)
	if err != nil {
		return nil, err
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version}
	entry, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return nil, err
	}
	return packTar("", r.made, withParents(append(l.files,
		regular("index.json", entry), regular("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)))))
}

// addImage stores the image of one architecture and returns the descriptor of its manifest.
func (r *release) addImage(l *layout, b binary) (descriptor, error) {
	files := []file{
		{name: "data", mode: fs.ModeDir | 0o700, owner: imageUser},
		regular("etc/passwd", []byte("root:x:0:0::/:/\nronbox:x:65532:65532::/data:/\n")),
		regular("etc/group", []byte("root:x:0:\nronbox:x:65532:\n")),
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{name: strings.TrimPrefix(binaryPath, "/"), mode: 0o755, body: b.body},
	}
	for _, d := range r.documents {
		files = append(files, regular("usr/share/doc/ronbox/"+d.name, d.body))
	}
	root, err := packTar("", r.made, withParents(files))
	if err != nil {
		return descriptor{}, err
	}
	at := platform{Architecture: b.goarch, OS: "linux", Variant: b.variant}
	config, err := l.addJSON(typeConfig, imageConfig{
		platform: at, Created: r.made, Config: r.imageRun(),
		RootFS: imageRootFS{Type: "layers", DiffIDs: []string{digestOf(root)}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: config,
		Layers: []descriptor{l.add(typeLayer, compress(gzip.DefaultCompression, root))},
	})
	d.Platform = &at
	return d, err
}

// imageRun returns the settings of a container: it makes a node in /data if there is none, and
// serves it to the network of the container without TLS. The check of its health is Docker's, as
// the OCI format has none; its times are in nanoseconds.
func (r *release) imageRun() map[string]any {
	type set map[string]struct{}
	return map[string]any{
		"User":         "65532:65532",
		"ExposedPorts": set{"8080/tcp": {}},
		"Env": []string{
			"PATH=/usr/bin", "RONBOX_NODE__DATA_DIR=/data", "RONBOX_SERVER__BIND=0.0.0.0:8080",
			"RONBOX_SERVER__PLAINTEXT=true",
		},
		"Entrypoint": []string{binaryPath},
		"Cmd":        []string{"init", "--start"},
		"Volumes":    set{"/data": {}},
		"WorkingDir": "/data",
		"StopSignal": "SIGTERM",
		"Labels": map[string]string{
			"org.opencontainers.image.title":    "ronbox",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
		"Healthcheck": map[string]any{
			"Test": []string{"CMD", binaryPath, "status", "-q"}, "Interval": 30 * time.Second,
			"Timeout": 5 * time.Second, "StartPeriod": time.Minute, "Retries": 3,
		},
	}
}
