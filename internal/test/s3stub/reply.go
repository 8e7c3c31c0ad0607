package s3stub

import (
	"bytes"
	"encoding/xml"
	"net/http"
)

// reply is an answer before it is sent.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func ok(status int) *reply { return &reply{status: status, header: http.Header{}} }

// fail returns an answer with S3's error document.
func fail(req *Request, status int, code, message string) *reply {
	return document(status, "Error", func(b *bytes.Buffer) {
		element(b, "Code", code)
		element(b, "Message", message)
		element(b, "Resource", "/"+req.Bucket+"/"+req.Key)
	})
}

// document returns an answer in XML.
func document(status int, root string, content func(*bytes.Buffer)) *reply {
	var b bytes.Buffer
	b.WriteString(xml.Header + "<" + root)
	if root != "Error" {
		b.WriteString(` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`)
	}
	b.WriteString(">")
	content(&b)
	b.WriteString("</" + root + ">")
	a := ok(status)
	a.header.Set("Content-Type", "application/xml")
	a.body = b.Bytes()
	return a
}

// element writes an element, unless its text is empty.
func element(b *bytes.Buffer, name, text string) {
	if text == "" {
		return
	}
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a Buffer does not fail
	b.WriteString("</" + name + ">")
}
