package site

import (
	"path"
	"strings"
)

// Bytes is the type of a file whose extension is not in the list. Browsers save such a file and do
// not show it.
const Bytes = "application/octet-stream"

// types lists the media types that are served, by extension. It has no type that runs outside of
// the sandbox of a page, such as text/cache-manifest or application/x-shockwave-flash.
var types = map[string]string{
	".avif":        "image/avif",
	".bin":         Bytes,
	".bmp":         "image/bmp",
	".css":         "text/css; charset=utf-8",
	".csv":         "text/csv; charset=utf-8",
	".flac":        "audio/flac",
	".gif":         "image/gif",
	".gz":          "application/gzip",
	".htm":         "text/html; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".ico":         "image/vnd.microsoft.icon",
	".jpeg":        "image/jpeg",
	".jpg":         "image/jpeg",
	".js":          "text/javascript; charset=utf-8",
	".json":        "application/json",
	".jsonld":      "application/ld+json",
	".m4a":         "audio/mp4",
	".map":         "application/json",
	".md":          "text/markdown; charset=utf-8",
	".mjs":         "text/javascript; charset=utf-8",
	".mp3":         "audio/mpeg",
	".mp4":         "video/mp4",
	".oga":         "audio/ogg",
	".ogg":         "audio/ogg",
	".ogv":         "video/ogg",
	".opus":        "audio/ogg",
	".otf":         "font/otf",
	".pbf":         "application/x-protobuf",
	".pdf":         "application/pdf",
	".png":         "image/png",
	".svg":         "image/svg+xml",
	".tar":         "application/x-tar",
	".toml":        "application/toml",
	".ttf":         "font/ttf",
	".txt":         "text/plain; charset=utf-8",
	".wasm":        "application/wasm",
	".wav":         "audio/wav",
	".webm":        "video/webm",
	".webmanifest": "application/manifest+json",
	".webp":        "image/webp",
	".woff":        "font/woff",
	".woff2":       "font/woff2",
	".xml":         "application/xml",
	".yaml":        "application/yaml",
	".yml":         "application/yaml",
	".zip":         "application/zip",
}

// allowed holds the types of the list, and the type of manifests.
var allowed = func() map[string]bool {
	out := map[string]bool{MediaType: true}
	for _, kind := range types {
		out[kind] = true
	}
	return out
}()

// TypeOf returns the media type of a file by the extension of its name, or Bytes if the list does
// not have the extension.
func TypeOf(name string) string {
	if kind, ok := types[strings.ToLower(path.Ext(name))]; ok {
		return kind
	}
	return Bytes
}

// Allowed reports whether a media type is in the list.
func Allowed(kind string) bool { return allowed[kind] }

// Served returns the media type under which a file is served: that of its manifest if it is in the
// list, and otherwise Bytes.
func Served(kind string) string {
	if allowed[kind] {
		return kind
	}
	return Bytes
}
