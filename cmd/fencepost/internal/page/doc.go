// Package page is the live page of the verb serve: what a outside.Hub knows, in a browser.
package page
