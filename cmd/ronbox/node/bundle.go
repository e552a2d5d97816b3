package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/db"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// part is a file of a bundle.
type part struct {
	name, about string
	make        func(ctx context.Context, w io.Writer) error
}

// bundleDoc is the output of doctor --bundle.
type bundleDoc struct {
	File    string        `json:"file"`
	Bytes   int64         `json:"bytes"`
	Files   []bundledFile `json:"files"`
	Missing []missingFile `json:"missing"` // parts that could not be collected
}

type bundledFile struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	about string
	data  []byte
}

type missingFile struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// bundle writes the state of the node and its machine into a new file for a maintainer. It
// contains no secrets. Parts that cannot be collected are named in it.
func (a app) bundle(ctx context.Context, file string) error {
	doc := bundleDoc{File: file, Missing: []missingFile{}}
	var err error
	doc.Bytes, err = cli.ProduceFile(file, 0o600, func(w io.Writer) error {
		if err := a.collect(ctx, &doc); err != nil {
			return err
		}
		return doc.write(w, a.Now().UTC())
	})
	if err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		for _, f := range doc.Files {
			t.Row("added", f.Name, cli.Bytes(int64(f.Bytes)), f.about)
		}
		for _, m := range doc.Missing {
			t.Row("missing", m.Name, "", m.Reason)
		}
		t.Row("written", doc.File, cli.Bytes(doc.Bytes))
	})
}

// collect collects the parts, and the index of them as the first file.
func (a app) collect(ctx context.Context, doc *bundleDoc) error {
	cfg, _ := a.examineConfig()
	_, running := a.examineNode(ctx, cfg)
	parts := a.ownParts(cfg, running)
	if running {
		c, err := a.ClientAt(cfg.SocketPath())
		if err != nil {
			return err
		}
		defer c.Close()
		parts = append(parts, nodeParts(nodeapi.NewClient(c))...)
	} else {
		parts = append(parts, fileParts(cfg.Path(config.DatabaseName))...)
	}
	for _, p := range parts {
		a.Say("collecting %s", p.name)
		data, err := p.read(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			doc.Missing = append(doc.Missing, missingFile{p.name, err.Error()})
			continue
		}
		doc.Files = append(doc.Files, bundledFile{p.name, len(data), p.about, data})
	}
	index := doc.index(a.Build.Version, a.Now().UTC(), running)
	first := bundledFile{"README.txt", len(index), "this list", index}
	doc.Files = append([]bundledFile{first}, doc.Files...)
	return nil
}

// partTime bounds the time of a part: a node that hangs leaves out its parts.
const partTime = 10 * time.Second

func (p part) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	var data bytes.Buffer
	err := p.make(ctx, &data)
	return data.Bytes(), err
}

// document returns a part with one answer as JSON, indented for people.
func document[T any](name, about string, ask func(ctx context.Context) (T, error)) part {
	return part{name, about, func(ctx context.Context, w io.Writer) error {
		doc, err := ask(ctx)
		if err != nil {
			return err
		}
		return json.MarshalWrite(w, doc, json.Deterministic(true), jsontext.Multiline(true))
	}}
}

// ownParts returns the parts that need no running node.
func (a app) ownParts(cfg *config.Config, running bool) []part {
	return []part{
		document("binary.json", "version of the program that made this bundle",
			func(context.Context) (map[string]string, error) {
				return map[string]string{"version": a.Build.Version, "commit": a.Build.Commit, "go": runtime.Version(),
					"os": runtime.GOOS, "arch": runtime.GOARCH}, nil
			}),
		{"config.txt", "each key with its value and source; secrets are ***",
			func(ctx context.Context, w io.Writer) error { return a.writeConfig(ctx, w, running) }},
		document("doctor.json", "findings of `ronbox doctor`", func(ctx context.Context) (doctorDoc, error) {
			findings := a.findings(ctx)
			return doctorDoc{OK: firstBad(findings) == nil, Findings: findings}, ctx.Err()
		}),
		{"topology.md", "declared tasks, queues, buses and locks", func(_ context.Context, w io.Writer) error {
			all, err := server.Topologies(cfg, a.Build)
			if err != nil {
				return err
			}
			_, err = io.WriteString(w, server.TopologyTables(all))
			return err
		}},
		{"files.txt", "names, modes and sizes in the data directory", func(_ context.Context, w io.Writer) error {
			return listFiles(w, cfg.Node.DataDir)
		}},
	}
}

// nodeParts returns the parts that a running node has.
func nodeParts(c nodeapi.Client) []part {
	profile := func(name, about string) part {
		return part{name + ".pb.gz", about, func(ctx context.Context, w io.Writer) error {
			return c.Profile(ctx, name, 0, w)
		}}
	}
	return []part{
		document("version.json", "versions of the running node", c.NodeVersion),
		document("status.json", "phase, addresses and figures of the node", c.Status),
		document("ready.json", "readiness of each service, with the keys that fail",
			func(ctx context.Context) (wire.Ready, error) { return c.Ready(ctx, "", "") }),
		document("tasks.json", "tasks with their last errors", c.Tasks),
		document("queues.json", "queues with their fill and drops", c.Queues),
		document("series.json", "the last hour, a value every 5 s", c.Series),
		document("db-info.json", "identity of the database", c.DBInfo),
		document("db-stats.json", "sizes of its buckets, and times of commits", c.DBStats),
		document("snapshots.json", "scheduled snapshots", c.Snapshots),
		{"metrics.txt", "metrics in the text format of Prometheus", func(ctx context.Context, w io.Writer) error {
			raw, err := c.Metrics(ctx)
			if err != nil {
				return err
			}
			_, err = w.Write(raw)
			return err
		}},
		profile("goroutine", "goroutines: go tool pprof -traces goroutine.pb.gz"),
		profile("heap", "memory: go tool pprof -top heap.pb.gz"),
	}
}

// fileParts returns the parts that the database file of a stopped node has.
func fileParts(path string) []part {
	return []part{
		document("db-info.json", "identity of the database, and the rows of its buckets",
			func(ctx context.Context) (nodeapi.DBInfo, error) { return db.ReadInfo(ctx, path, false) }),
		document("db-stats.json", "sizes of its buckets",
			func(ctx context.Context) (nodeapi.DBStats, error) { return db.ReadStats(ctx, path) }),
	}
}

// writeConfig writes the keys of the running node, or those that a node would load.
func (a app) writeConfig(ctx context.Context, w io.Writer, running bool) error {
	shown, err := a.configKeys(ctx, running)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range shown.Keys {
		fmt.Fprintf(t, "%s = %s\t# %s %s\n", k.Key, k.Value, k.Source, k.Where)
	}
	return t.Flush()
}

// mostFiles bounds the list of the data directory, and deepest the folders that it enters: the
// content store has a file for each object.
const (
	mostFiles = 2000
	deepest   = 2
)

// listFiles lists the files in dir and in its folders.
func listFiles(w io.Writer, dir string) error {
	listed := 0
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			_, failed := fmt.Fprintf(w, "%v\n", err)
			if path == dir {
				return err
			}
			return failed
		}
		name, _ := filepath.Rel(dir, path) // it is below dir
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if listed++; listed > mostFiles {
			return fs.SkipAll
		}
		_, err = fmt.Fprintf(w, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339),
			name)
		if err == nil && d.IsDir() && strings.Count(name, string(filepath.Separator)) >= deepest {
			return fs.SkipDir
		}
		return err
	})
}

// index returns the text that describes the files of the bundle.
func (d *bundleDoc) index(version string, at time.Time, running bool) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "Bundle of `ronbox doctor --bundle`, version %s, made %s.\n", version, cli.FormatTime(at))
	if running {
		fmt.Fprint(&out, "The node was running.\n\n")
	} else {
		fmt.Fprint(&out, "The node was not running: there are no figures of its tasks, queues and memory.\n\n")
	}
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, f := range d.Files {
		fmt.Fprintf(t, "%s\t%s\n", f.Name, f.about)
	}
	for _, m := range d.Missing {
		fmt.Fprintf(t, "%s\tmissing: %s\n", m.Name, cli.Plain(strings.ReplaceAll(m.Reason, "\n", "; ")))
	}
	_ = t.Flush() // into memory
	fmt.Fprint(&out, `
The bundle contains no keys, tokens or rows of the database. It names the files and
addresses of the configuration, and the id of the node: look through it before you share it.

The node writes its log to standard error and keeps none of it. With systemd, add
  journalctl -u ronbox --since "2 hours ago" > ronbox.log
`)
	return out.Bytes()
}

// write writes the files as a compressed tar archive with one folder.
func (d *bundleDoc) write(w io.Writer, at time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, f := range d.Files {
		h := tar.Header{
			Name: "ronbox-bundle/" + f.Name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(f.Bytes), ModTime: at,
			Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}
