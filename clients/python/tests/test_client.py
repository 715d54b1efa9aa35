"""The client against a real gateway; clients/test starts it and sets the environment."""

import os
import threading
import time
import unittest
from email.message import Message

from waggle_client import Agent, WaggleError, Written
from waggle_client.agent import revision
from waggle_client.http import Answer

NAME = os.environ["WAGGLE_AGENT"]


def text(content, **more):
    return {"name": "n", "contents": [{"text": content}], **more}


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.agent = Agent(NAME)
        self.addCleanup(self.agent.close)
        self.agent.apply({"apiVersion": "waggle/v1", "resources": [], "templates": [], "prompts": []})

    def assertRefused(self, code, status, call, *arguments, **more):
        with self.assertRaises(WaggleError) as caught:
            call(*arguments, **more)
        self.assertEqual((caught.exception.code, caught.exception.status), (code, status))
        return caught.exception

    def test_definitions_are_written_read_listed_and_deleted(self):
        kinds = [
            (self.agent.resources, "x:%C3%BC?a=b&c=%20", text("one")),
            (self.agent.templates, "y:{city}", {"name": "n", "template": "{{ city }}"}),
            (self.agent.prompts, "p", {"messages": [{"role": "user", "content": {"type": "text", "text": "t"}}]}),
        ]
        for definitions, key, definition in kinds:
            with self.subTest(key):
                first = definitions.put(key, definition, create=True)
                self.assertTrue(first.created)
                self.assertEqual(definitions.put(key, definition), Written(first.revision, False))
                read = definitions.get(key)
                self.assertEqual(read.revision, first.revision)
                self.assertLessEqual(definition.items(), read.value.items())
                self.assertEqual(len(list(definitions.list())), 1)
                definitions.delete(key)
                definitions.delete(key)
                self.assertIsNone(definitions.get(key))

    def test_content_is_kept_as_it_is_and_subscribers_are_notified(self):
        resources = self.agent.resources
        content = bytes(range(256))
        written = resources.put_content("x:bytes", content, "application/octet-stream")
        self.assertEqual(resources.content("x:bytes"), content)
        self.assertGreater(resources.touch("x:bytes"), written.revision)

    def test_lists_have_all_pages(self):
        resources = [{"uri": f"x:{n}", **text("t")} for n in range(501)]
        self.agent.apply({"apiVersion": "waggle/v1", "resources": resources, "templates": [], "prompts": []})
        listed = {resource["uri"] for resource in self.agent.resources.list()}
        self.assertEqual(listed, {resource["uri"] for resource in resources})

    def test_conditions_that_do_not_hold_are_refused(self):
        resources = self.agent.resources
        first = resources.put("x:1", text("one"))
        self.assertRefused("revision_mismatch", 412, resources.put, "x:1", text("two"), create=True)
        second = resources.put("x:1", text("two"), if_revision=first.revision)
        self.assertRefused("revision_mismatch", 412, resources.put, "x:1", text("three"), if_revision=first.revision)
        self.assertRefused("revision_mismatch", 412, resources.delete, "x:1", if_revision=first.revision)
        manifest = {"apiVersion": "waggle/v1"}
        self.assertRefused("revision_mismatch", 412, self.agent.apply, manifest, if_revision=first.revision)
        self.assertEqual(resources.get("x:1").revision, second.revision)

    def test_concurrent_changes_are_all_kept(self):
        self.agent.resources.put("x:count", text("0"))

        def add(present):
            count = int(present["contents"][0]["text"]) + 1
            return {**present, "contents": [{"text": str(count)}]}

        def work():
            with Agent(NAME) as agent:
                for _ in range(5):
                    agent.resources.change("x:count", add)

        workers = [threading.Thread(target=work) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(self.agent.resources.content("x:count"), b"30")
        self.assertRefused("not_found", 404, self.agent.resources.change, "x:none", add)

    def test_manifest_is_planned_applied_and_read(self):
        manifest = {"apiVersion": "waggle/v1", "agent": NAME, "resources": [{"uri": "x:1", **text("one")}],
                    "templates": [], "prompts": [], "skills": [], "mounts": []}
        before = self.agent.manifest().revision
        planned = self.agent.apply(manifest, dry_run=True)
        self.assertEqual((planned["created"]["resources"], planned["revision"]), (["x:1"], before))
        self.assertEqual(self.agent.apply(manifest, if_revision=before)["created"]["count"], 1)
        self.assertEqual(self.agent.manifest().value, manifest)

    def test_limited_requests_wait_as_the_gateway_asks(self):
        with Agent(NAME, key=os.environ["LIMITED_KEY"], retry_seconds=0) as hasty:
            def burst():
                for n in range(20):
                    hasty.resources.put(f"x:{n}", text("t"))
            refused = self.assertRefused("rate_limited", 429, burst)
            self.assertTrue(refused.request_id)
        with Agent(NAME, key=os.environ["LIMITED_KEY"]) as patient:
            began = time.monotonic()
            for n in range(4):
                patient.resources.put(f"y:{n}", text("t"), create=True)
            self.assertGreater(time.monotonic() - began, 1, "Retry-After is in whole seconds")

    def test_lost_answers_are_asked_for_again_unless_conditional(self):
        with Agent(NAME, url=os.environ["LOSSY_URL"]) as agent:
            self.assertFalse(agent.resources.put("x:lost", text("one")).created, "the first attempt wrote it")
            agent.resources.delete("x:lost")
            self.assertRefused("unreachable", None, agent.resources.put, "x:lost2", text("one"), create=True)
        self.assertEqual(self.agent.resources.content("x:lost2"), b"one")

    def test_refusals_and_unreachable_gateways_are_named(self):
        with Agent("none") as other:
            self.assertRefused("not_found", 404, other.resources.put, "x:1", text("t"))
        with Agent(NAME, key="bak_wrong") as stranger:
            self.assertRefused("unauthenticated", 401, stranger.manifest)
        with Agent(NAME, url="http://127.0.0.1:1", retry_seconds=0) as nowhere:
            self.assertRefused("unreachable", None, nowhere.manifest)
        refused = self.assertRefused("invalid_params", 400, self.agent.resources.put, "x:1", {"nam": "n"})
        self.assertIn("unknown field `nam`", str(refused))

    def test_a_weak_etag_names_a_revision_as_a_strong_one_does(self):
        for tag in ['"7"', 'W/"7"', '"7-gzip"', 'W/"7-gzip"']:
            headers = Message()
            headers["ETag"] = tag
            self.assertEqual(revision(Answer(200, headers, b"")), 7, tag)

    def test_wrong_arguments_are_refused_before_anything_is_sent(self):
        for arguments in [{"url": "ftp://x"}, {"url": "nonsense"}, {"key": "two words"}, {"key": "line\n"}]:
            with self.subTest(arguments), self.assertRaises(ValueError):
                Agent(NAME, **arguments)


if __name__ == "__main__":
    unittest.main()
