"""The wheel carries a library: it is of one platform, and of any Python 3. All else is in pyproject.toml."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class OfOnePlatform(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": OfOnePlatform})
