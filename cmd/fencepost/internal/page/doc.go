// Package page is the live page of the verb serve: what a watch.Hub knows, in a browser.
package page
