package store

import "os"

type (
	Stamp  struct{ Seq uint64 }
	Writes struct{ rows map[string]string }
	Reader interface{ Get(key string) string }
)

type fileReader struct{}

func (fileReader) Get(key string) string {
	b, _ := os.ReadFile(key)
	return string(b)
}

func (w *Writes) Put(key, value string) { w.rows[key] = value }

func (w *Writes) Each(f func(string)) {
	for k := range w.rows {
		f(k)
	}
}

type accept struct{}

func (accept) Apply(r Reader, at Stamp, w *Writes) (int, error) {
	w.Each(func(string) {})
	return len(r.Get("a")), helper()
}

func helper() error {
	_, err := os.Hostname() // want `Apply reaches a call of os.Hostname`
	return err
}
