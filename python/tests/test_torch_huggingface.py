# Environments: torch
"""A model of Hugging Face trains by one line, and Hugging Face loads what was trained."""

import importlib.util
import subprocess
import unittest
from pathlib import Path

import torch
from runs import COMMAND, Place

SCRIPT = Path(__file__).parent / "scripts/torch_huggingface.py"


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
class HuggingFace(unittest.TestCase):
    """One model, whose output shares its weights with the words' vectors."""

    def test_any_workers_train_it_and_hugging_face_loads_it(self) -> None:
        from transformers import GPT2LMHeadModel

        place = Place()
        self.addCleanup(place.end)
        one, two = (place.train(SCRIPT, "--workers", count) for count in ("1", "2"))
        self.assertEqual((one.code, two.code), (0, 0), one.log + two.log)
        self.assertNotEqual(one.digest, "")
        self.assertEqual(one.digest, two.digest)
        folder = one.folder / "saved"
        command = [COMMAND, "export", "torch_huggingface", "-o", str(folder / "model.safetensors")]
        subprocess.run(command, check=True, env=place.environment(one.folder / "state"))
        loaded, told = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
        self.assertEqual([told[key] for key in told if told[key]], [], told)
        saved = torch.load(one.folder / "model.pt")
        ours = loaded.state_dict()
        self.assertEqual(ours.keys(), saved.keys())
        self.assertTrue(all(torch.equal(ours[name], saved[name]) for name in saved))
        self.assertIs(loaded.lm_head.weight, loaded.transformer.wte.weight)


if __name__ == "__main__":
    unittest.main()
