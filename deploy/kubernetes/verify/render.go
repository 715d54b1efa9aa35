// Renders the chart as `helm template` does, for machines without Helm: Go's own templates, and the functions that the
// chart uses. Arguments: the chart's directory, and the built-in objects and values as JSON.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func toJSON(value interface{}) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// The lines of a value: maps and lists as blocks, sorted by key, and everything else as JSON, which is YAML.
func toYAML(value interface{}) (lines []string) {
	// The block of a member or item, after what introduces it.
	block := func(head string, inner interface{}) {
		text := toYAML(inner)
		if strings.HasSuffix(head, ":") {
			if inside, ok := inner.(map[string]interface{}); ok && len(inside) > 0 {
				lines = append(lines, head)
				for _, line := range text {
					lines = append(lines, "  "+line)
				}
				return
			}
			if list, ok := inner.([]interface{}); ok && len(list) > 0 {
				lines = append(append(lines, head), text...)
				return
			}
		}
		lines = append(lines, head+" "+text[0])
		for _, line := range text[1:] {
			lines = append(lines, "  "+line)
		}
	}
	switch value := value.(type) {
	case map[string]interface{}:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			block(key+":", value[key])
		}
	case []interface{}:
		for _, item := range value {
			block("-", item)
		}
	}
	if len(lines) == 0 {
		text, err := toJSON(value)
		fail(err)
		lines = []string{text}
	}
	return lines
}

// Whether Helm's `default` replaces a value.
func isEmpty(value interface{}) bool {
	truth, _ := template.IsTrue(value)
	return !truth
}

func main() {
	var objects map[string]interface{}
	decoder := json.NewDecoder(strings.NewReader(os.Args[2]))
	decoder.UseNumber()
	fail(decoder.Decode(&objects))

	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var text bytes.Buffer
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if isEmpty(value) {
				return nil, fmt.Errorf("%s", message)
			}
			return value, nil
		},
		"default": func(other, value interface{}) interface{} {
			if isEmpty(value) {
				return other
			}
			return value
		},
		"toYaml": func(value interface{}) string { return strings.Join(toYAML(value), "\n") },
		"toJson": toJSON,
		"quote":  func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"join": func(separator string, items []interface{}) string {
			texts := make([]string, len(items))
			for at, item := range items {
				texts[at] = fmt.Sprint(item)
			}
			return strings.Join(texts, separator)
		},
		"ternary": func(yes, no interface{}, truth bool) interface{} {
			if truth {
				return yes
			}
			return no
		},
		"add": func(numbers ...interface{}) (sum int64, err error) {
			for _, number := range numbers {
				var one int64
				if _, err = fmt.Sscan(fmt.Sprint(number), &one); err != nil {
					return
				}
				sum += one
			}
			return
		},
		"dict": func(pairs ...interface{}) map[string]interface{} {
			made := map[string]interface{}{}
			for at := 0; at+1 < len(pairs); at += 2 {
				made[fmt.Sprint(pairs[at])] = pairs[at+1]
			}
			return made
		},
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	})

	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*"))
	fail(err)
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		fail(err)
		_, err = all.New(filepath.Base(file)).Parse(string(text))
		fail(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".yaml") {
			fmt.Println("---")
			fail(all.ExecuteTemplate(os.Stdout, filepath.Base(file), objects))
		}
	}
}
